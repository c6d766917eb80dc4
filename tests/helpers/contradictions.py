"""What a result says, read against its own records: superlatives, counts, comparisons, status.

`contradictions` takes the plain record that `records.record` makes of a result. It returns one
line for each sentence (headline, finding, reason, or a claim's part) that the record's numbers do
not bear. It shares no code with what words the results: names and numbers are read from the text,
and looked up in JSON, tables and figures.

- all results: an interval holds its estimate; of "N of M" N is no more than M and both can be
  counted in the record; "significant" and "not significant" fit their p; a confirming status has no
  reason, and no finding that begins as an undecided one;
- `READERS`: the sentences of single analyses with a superlative, a count or a comparison.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

CONFIRMING = {"separable", "detected", "computed", "confirmed", "sound", "passed", "reached"}
LEVEL = 0.05
NUMBER = r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
HEAD = r"L(\d+)H(\d+)"
INTERVAL = re.compile(rf"(?<![\w.])({NUMBER})(?: %)? \[({NUMBER}), ({NUMBER})\]")
COUNT = re.compile(
    r"(?<![\d.,])(none|\d[\d,]*) of (?:the |its |these |all )?(\d[\d,]*)(?![\d.]|,\d)"
)
P_VALUE = re.compile(rf"\bp = ({NUMBER})")
WORDS = {"no": 0, "none": 0, "one": 1, "both": 2, "two": 2}

Record = Mapping[str, Any]
Reader = Callable[[Record, str], Iterator[str]]


def contradictions(record: Record) -> list[str]:
    """Every sentence of a result that its own records contradict, each with the reason."""
    result = record["result"]
    objections = list(_of_status(result))
    for sentence in sentences_of(result):
        for reader in (*EVERYWHERE, *READERS.get(result["probe"], ())):
            objections += [f"{why}: {sentence}" for why in reader(record, sentence)]
    if result["probe"] == "audit":
        objections += _of_audit(result)
    return objections


def contradictions_in(text: str) -> list[str]:
    """Numbers of a text that contradict each other, where no record is at hand."""
    objections = [*_intervals({}, text), *_p_values({}, text)]
    objections += [
        f"{some} of {of}" for some, of in COUNT.findall(text) if number(some) > number(of)
    ]
    return [f"{why}: {text}" for why in objections]


def sentences_of(result: Record) -> list[str]:
    """Headline, findings, the reason of the status, and the parts of audited claims."""
    parts = [part["summary"] for claim in result.get("claims") or () for part in claim["parts"]]
    reason = result["evidence"].get("reason")
    return [result["headline"], *result["findings"], *([reason] if reason else []), *parts]


def number(text: str) -> float:
    """A number as results write it."""
    return float(WORDS.get(text.lower(), text.replace(",", "").replace("−", "-")))


# All results


def _of_status(result: Record) -> Iterator[str]:
    if result["status"] != result["evidence"]["status"]:
        yield f"two statuses, {result['status']} and {result['evidence']['status']}"
    confirming = result["status"] in CONFIRMING
    if confirming and result["evidence"].get("reason"):
        yield f"{result['status']}, with a reason against: {result['evidence']['reason']}"
    for sentence in (result["headline"], *result["findings"]):
        open_ = re.match(r"(Undecided|Not informative|Not tested|No \w+ (is|stands))\b", sentence)
        if confirming and open_ and sentence == result["headline"]:
            yield f"{result['status']}: {sentence}"


def _intervals(record: Record, sentence: str) -> Iterator[str]:
    for estimate, low, high in INTERVAL.findall(sentence):
        if not number(low) <= number(estimate) <= number(high):
            yield f"{estimate} outside [{low}, {high}]"


def _counts(record: Record, sentence: str) -> Iterator[str]:
    numbers: set[float] | None = None
    for some, of in COUNT.findall(sentence):
        if number(some) > number(of):
            yield f"{some} of {of}"
        if numbers is None:
            numbers = {*countable(record), *_reaching(record["result"]["evidence"])}
        if number(of) and number(some) / number(of) in numbers:
            continue  # the record holds the fraction
        for one in {some, of} - {"none"}:
            if number(one) not in numbers:
                yield f"nothing in the record counts {one}"


def _p_values(record: Record, sentence: str) -> Iterator[str]:
    for match in P_VALUE.finditer(sentence):
        before = sentence[: match.start()].rpartition(";")[2]
        p_value = number(match[1])
        if re.search(r"\bnot (?:significant|significantly|distinguishable)\b", before):
            if p_value <= LEVEL:
                yield f"p = {match[1]} is significant"
        elif re.search(r"\bsignificant(?:ly)?\b", before) and p_value > LEVEL:
            yield f"p = {match[1]} is not significant"


EVERYWHERE: Sequence[Reader] = (_intervals, _counts, _p_values)


def countable(value: Any) -> Iterator[float]:
    """Numbers that a record holds, and what can be counted in it: entries, values, sums."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, Mapping):
        plain = [v for v in value.values() if isinstance(v, int) and not isinstance(v, bool)]
        yield from (float(sum(plain) - one) for one in (0, *plain))  # all, or all but one kind
        yield float(len(value))
        for key, one in value.items():
            if key not in ("headline", "findings", "verdict", "reason", "summary"):
                yield from countable(one)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield float(len(value))
        yield from _tallies(value)
        for one in value:
            yield from countable(one)


def _reaching(evidence: Record) -> Iterator[float]:
    """How many numbers of a list reach a number of the evidence."""
    numbers = [v for v in evidence.values() if isinstance(v, int | float)]
    for values in evidence.values():
        if isinstance(values, list) and all(isinstance(v, int | float) for v in values):
            yield from (float(sum(v >= one for v in values)) for one in numbers)


def _tallies(entries: Sequence[Any]) -> Iterator[float]:
    """How many entries share a value, in each field; how many have one; heads without repeats."""
    if all(isinstance(entry, Mapping) for entry in entries):
        rows = [dict(entry) for entry in entries]
    elif all(isinstance(entry, list) for entry in entries):
        rows = [dict(enumerate(entry)) for entry in entries]
    else:
        yield from map(float, Counter(str(entry) for entry in entries).values())
        return
    for key in {key for row in rows for key in row}:
        column = [row.get(key) for row in rows]
        tally = Counter(str(cell) for cell in column)
        yield from map(float, tally.values())
        yield from (float(len(rows) - one) for one in tally.values())
        yield float(len(tally))
        yield float(sum(cell is not None for cell in column))
        yield float(sum(bool(cell) for cell in column))
    heads = {(row.get("layer"), row.get("head")) for row in rows}
    yield float(len(heads))


# Roles and heads


def _writes_most(record: Record, sentence: str) -> Iterator[str]:
    """The head's direct effect is larger than any other head's, and than any may be."""
    for layer, head in re.findall(rf"{HEAD} writes most", sentence):
        [figure] = [f for f in record["figures"] if f["title"] == "Direct effects"]
        effects = {
            (row, column): abs(cell)
            for row, line in enumerate(figure["plot"]["data"][0]["z"])
            for column, cell in enumerate(line)
        }
        own = effects.pop((int(layer), int(head)))
        yield from (
            f"L{row}H{column} writes {other:.3g}, more than {own:.3g}"
            for (row, column), other in effects.items()
            if other >= own
        )
        for entry in record["result"]["writers"]:
            farthest = max(abs(entry["direct"]["low"]), abs(entry["direct"]["high"]))
            if (entry["layer"], entry["head"]) != (int(layer), int(head)) and farthest >= own:
                yield f"L{entry['layer']}H{entry['head']} may write {farthest:.3g}"


def _largest_of(record: Record, sentence: str) -> Iterator[str]:
    if match := re.search(r"\(the (\d+) largest of (\d+)\)", sentence):
        sizes = [abs(one["direct"]["mean"]) for one in record["result"]["writers"]]
        if int(match[2]) != len(sizes):
            yield f"{len(sizes)} writers"
        shown = [int(match[1]), *[abs(number(n)) for n in re.findall(rf"({NUMBER}) \[", sentence)]]
        if sizes and min(sizes[: shown[0]]) < max(sizes[shown[0] :], default=0):
            yield "a larger writer is left out"


def _named_heads(record: Record, sentence: str) -> Iterator[str]:
    """The headline names as heads of a kind those that the record detects, and no others."""
    result = record["result"]
    if sentence != result["headline"] or result["status"] != "detected":
        return
    detected = {(h["layer"], h["head"]) for h in result["heads"] if h["status"] == "detected"}
    for layer, head in re.findall(HEAD, sentence):
        if (int(layer), int(head)) not in detected:
            yield f"L{layer}H{head} is not detected"
    for entry in result["heads"]:
        p_value = entry["deciding_p"]
        if entry["status"] == "detected" and (p_value is None or p_value > LEVEL):
            yield f"L{entry['layer']}H{entry['head']} is detected at p = {p_value}"


def _strongest_head(record: Record, sentence: str) -> Iterator[str]:
    """By the effect of one knockout that all of its kind had: of the head alone."""
    if match := re.search(rf"^(\S+?):.*Strongest(?: alone)?: {HEAD}", sentence):
        kind, name = match[1].lower(), (int(match[2]), int(match[3]))
        alone = {
            (h["layer"], h["head"]): min((own[0] for own in h["own"].values()), key=abs)
            for h in record["result"]["heads"]
            if h["detector"].lower() == kind and h["status"] == "detected" and h["own"]
        }
        if name not in alone:
            yield f"L{name[0]}H{name[1]} is not detected"
        elif alone[name] < max(alone.values()):
            yield f"another {kind} head has a larger effect alone"
    if match := re.search(r"in (both|all (\d+)) heads that have the pattern", sentence):
        groups = {g["detector"].capitalize(): g for g in record["result"]["groups"]}
        group = groups.get(sentence.partition(":")[0])
        if group and len(group["heads"]) != int(match[2] or 2):
            yield f"{len(group['heads'])} heads have it"


# Circuits


def _circuit(record: Record, sentence: str) -> Iterator[str]:
    result, evidence = record["result"], record["result"]["evidence"]
    edges = result["edges"]
    if match := re.match(r"([\d,]+) of ([\d,]+) edges", sentence):
        if (number(match[1]), number(match[2])) != (len(edges), evidence["edges"]):
            yield f"{len(edges)} of {evidence['edges']} edges in the record"
        unmeasured = sum(edge["effect"] is None for edge in edges)
        if re.search(r"edges matter\b", sentence) and unmeasured:
            yield f"{unmeasured} of these edges were not ablated"
        low, within = evidence["faithfulness_low"], evidence["equivalent_within"]
        if "suffice" in sentence and "whether" not in sentence and not low >= 1 - (within or 0):
            yield f"alone they keep {low} or more"
        if "carry only a part" in sentence and not evidence["faithfulness_high"] < 1:
            yield f"alone they may keep {evidence['faithfulness_high']}"
    if "largest effect first" in sentence:
        listed = re.findall(r"[\w>]+->[\w>]+(?: \([QKV]+\))?", sentence)
        sizes = [abs(e["effect"]) for e in edges if e["effect"] is not None]
        if sizes != sorted(sizes, reverse=True) or len(listed) > len(edges):
            yield "the edges are not in that order"
    yield from _rivals(evidence, sentence)


def _rivals(evidence: Record, sentence: str) -> Iterator[str]:
    tried, as_good = evidence["rivals"], evidence["rivals_as_good"]
    if match := re.search(r"(none|\d+) of (\d+) other circuits", sentence):
        if (number(match[1]), number(match[2])) != (as_good, tried):
            yield f"{as_good} of {tried} in the record"
        best, own = evidence["best_rival_keeps"], evidence["faithfulness"]
        if (best >= own) != (number(match[1]) > 0):
            yield f"the best of them keeps {best:.3g}, the circuit {own:.3g}"
    if "the only other circuit" in sentence and tried != 1:
        yield f"{tried} other circuits"
    if re.search(r"too few\b", sentence) and re.search(r"\(0\)", sentence):
        yield "none was compared, so they were not too few"
    if re.search(r"\bno(?:ne)? other circuits? .*compared", sentence) and tried:
        yield f"{tried} were compared"


# Boolean functions


def _separable(record: Record, sentence: str) -> Iterator[str]:
    """Of the headline: separability is confirmed only where most labels would not be separable."""
    result = record["result"]
    if sentence != result["headline"]:
        return
    site = result["sites"][result["focus"]]
    if "is not linearly separable" in sentence:
        if site["status"] != "not_separable" or not (site["certificate"] or site["denominators"]):
            yield "no certificate"
    elif "is linearly separable" in sentence and result["status"] in CONFIRMING:
        null = site["labelings"]
        if site["cover_chance"] > LEVEL and (not null or null["separable"] == null["tried"]):
            yield f"random labels are separable with chance {site['cover_chance']:.2g}"
    elif "probe reads" in sentence:
        held_out = site["held_out"]
        if not held_out or held_out["p_value"] > LEVEL or held_out["low"] <= 0.5:
            yield "no accuracy on held-out rows that is above chance"
    needed = [h for h in result["heads"] if h["status_ablated"] == "not_separable"]
    if re.search(r"necessary", sentence):
        names = set(re.findall(HEAD, sentence))
        if not names <= {(str(h["layer"]), str(h["head"])) for h in needed}:
            yield "without them it is not shown to be inseparable"


def _accuracy(record: Record, sentence: str) -> Iterator[str]:
    pattern = rf"accuracy is ({NUMBER}), (above|not significantly above) that .*?\(({NUMBER}); "
    if match := re.search(pattern, sentence):
        if match[2] == "above" and not number(match[1]) > number(match[3]):
            yield f"{match[1]} is not above {match[3]}"
        p_value = P_VALUE.search(sentence)
        if p_value and (match[2] == "above") != (number(p_value[1]) <= LEVEL):
            yield f"p = {p_value[1]}"


# Other analyses


def _strongest_composition(record: Record, sentence: str) -> Iterator[str]:
    result, significant = record["result"], record["result"]["evidence"]["significant"]
    match = re.search(r"^([\d,]+|One) compositions? ", sentence)
    if match and number(match[1]) != significant:
        yield f"{significant} are significant"
    pattern = rf"(?:the strongest is|from weights alone:) ({HEAD}) → ({HEAD}) \((\w)\)"
    if match := re.search(pattern, sentence):
        pairs = [pair for pair in result["pairs"] if pair["p_adjusted"] <= LEVEL]
        best = max(pairs, key=lambda pair: pair["score"])
        if (match[1], match[4], match[7]) != (best["writer"], best["reader"], best["mode"]):
            yield f"{best['writer']} → {best['reader']} ({best['mode']}) has a larger score"


def _contributions(record: Record, sentence: str) -> Iterator[str]:
    components = [c for c in record["result"]["components"] if c["status"]]
    if match := re.match(r"The (\d+) largest contributions of .*?: (.*)", sentence):
        named = re.findall(r"(?:^|; )(\S+(?: \d+)?) [-−+\d]", match[2])
        sizes = {c["name"]: abs(c["effect"]) for c in components}
        shown = [sizes[name] for name in named if name in sizes]
        if shown and sorted(sizes.values())[-len(shown)] > min(shown):
            yield "another contribution is larger"
    if sentence == record["result"]["headline"]:
        signs = {c["name"]: c["effect"] > 0 for c in components}
        for name in re.findall(r"(L\d+H\d+|MLP ?\d+) \(against it\)", sentence):
            if signs.get(name):
                yield f"{name} is for it"


def _skip_bigrams(record: Record, sentence: str) -> Iterator[str]:
    if match := re.search(r"up to ([\d,]+) for each", sentence):
        most = max(len(head["bigrams"]) for head in record["result"]["heads"])
        if number(match[1]) != most:
            yield f"one has {most}"


def _ands(record: Record, sentence: str) -> Iterator[str]:
    """So many ANDs of the pairs that are on together often enough, by class."""
    pattern = r"^The ANDs of ([\d,]+) of ([\d,]+) feature pairs are (computed|readable before)"
    if match := re.search(pattern, sentence):
        counts = record["result"]["layers"][record["result"]["focus"]]["counts"]
        seen = sum(counts.values()) - counts["unseen"]
        main = counts["computed" if match[3] == "computed" else "before"]
        if (number(match[1]), number(match[2])) != (main, seen):
            yield f"{main} of {seen} in the record"


READERS: Mapping[str, Sequence[Reader]] = {
    "roles": (_writes_most, _largest_of),
    "heads": (_named_heads, _strongest_head),
    "circuit": (_circuit,),
    "composition": (_strongest_composition,),
    "logit-attribution": (_contributions,),
    "skip-bigrams": (_skip_bigrams,),
    "uand": (_ands,),
    **dict.fromkeys(("boolean", "xor", "and", "or"), (_separable, _accuracy)),
}


# Audits


def _of_audit(result: Record) -> Iterator[str]:
    claims = result["claims"]
    answers = Counter(claim["answer"] for claim in claims)
    headline = result["headline"]
    if len(claims) == 1:
        answer = claims[0]["answer"].replace("_", " ").capitalize()
        if not headline.startswith(f"{answer}: {claims[0]['about']}"):
            yield f"the answer is {answer}: {headline}"
    else:
        for count, answer in re.findall(
            r"(\d+) (confirmed|refuted|undecided|not testable)", headline
        ):
            if answers[answer.replace(" ", "_")] != int(count):
                yield f"{answers} in the record: {headline}"
    for claim in claims:
        yield from _of_claim(claim)


def _of_claim(claim: Record) -> Iterator[str]:
    asserted = [part for part in claim["parts"] if part["asserted"]]
    if claim["answer"] == "confirmed" and any(part["answer"] != "confirmed" for part in asserted):
        yield f"confirmed, with a part that is not: {claim['about']}"
    if claim["answer"] == "refuted" and all(part["answer"] != "refuted" for part in asserted):
        yield f"refuted, without a part that is: {claim['about']}"
    for part in claim["parts"]:
        low, high, bound = part["low"], part["high"], part["bound"]
        if part["question"] == "matters" and None not in (low, high, bound):
            if part["answer"] == "confirmed" and low < bound - 1e-5:
                yield f"confirmed from {low:.3g}, claimed {bound:.3g}: {part['summary']}"
            if part["answer"] == "confirmed" and not _larger_bear(part["effects"], bound):
                yield f"no ablation of the whole head costs {bound:.3g}: {part['summary']}"
            if part["answer"] == "refuted" and high >= bound:
                yield f"refuted up to {high:.3g}, claimed {bound:.3g}: {part['summary']}"
        if part["question"] == "sentence":
            yield from _of_wording(part, claim["parts"])


def _larger_bear(effects: Mapping[str, Sequence[float]], bound: float) -> bool:
    """Whether ablating the whole head costs as much in some condition, by every way."""
    by_condition: dict[str, list[Sequence[float]]] = {}
    for name, share in effects.items():
        condition, _, way = name.partition(", ")
        if way:
            by_condition.setdefault(condition, []).append(share)
    larger = by_condition.values()
    return not larger or any(
        all(mean >= bound - 1e-5 and low > 0 for mean, low, _ in shares) for shares in larger
    )


def _of_wording(wording: Record, parts: Sequence[Record]) -> Iterator[str]:
    """What the wording row says of the tests, beside the tests that were made."""
    made = {part["method"] for part in parts if part["answer"] in _DECIDED}
    confirmed = {
        part["method"] for part in parts if part["answer"] == "confirmed" and part["asserted"]
    }
    text = wording["summary"]
    if re.search(r"the tests were observational", text) and "intervened" in made:
        yield f"an intervention was made: {text}"
    if re.search(r"nothing was confirmed", text) and confirmed:
        yield f"something was: {text}"
    if re.search(r"what was confirmed is observational", text) and "intervened" in confirmed:
        yield f"an intervention was confirmed: {text}"


_DECIDED = ("confirmed", "refuted", "undecided")
