"""A long analysis that is stopped gives what it finished."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import interp_toolkit as it
from interp_toolkit.finding import InterruptedAnalysis


def stopped_at(step):
    def progress(text):
        if step in text:
            raise KeyboardInterrupt

    return progress


def test_boolean_gives_the_sites_that_are_measured():
    rng = np.random.default_rng(0)
    data = it.data.data_from_arrays(
        {"tokens": rng.integers(2, 40, (120, 6)), "features": rng.random((120, 2)) < 0.5}
    )
    options = {"data": data, "hooks": "blocks.*.hook_resid_post", "shuffles": 19}
    whole = it.analyze("toy:induction-trained", "xor", **options)
    with pytest.raises(InterruptedAnalysis) as stopped:
        it.analyze("toy:induction-trained", "xor", progress=stopped_at("site 2"), **options)
    part = stopped.value.finding
    assert (part.probe, len(part.sites), len(whole.sites)) == ("xor", 1, 2)
    assert part.sites[0].hook == whole.sites[0].hook
    assert part.sites[0].accuracy == whole.sites[0].accuracy
    assert any("2 of 2" in note for note in part.notes)
    with pytest.raises(KeyboardInterrupt) as nothing:
        it.analyze("toy:induction-trained", "xor", progress=stopped_at("site 1"), **options)
    assert not isinstance(nothing.value, InterruptedAnalysis)


def test_boolean_without_its_copies_confirms_nothing():
    with pytest.raises(InterruptedAnalysis) as stopped:
        it.analyze("toy:xor-2head", "xor", progress=stopped_at("weight-shuffled"))
    finding = stopped.value.finding
    assert finding.sites[-1].status == "separable"
    assert finding.status == "undecided"


def test_an_audit_gives_the_claims_that_are_tested():
    claims = ["L1H0 is an induction head", "L0H1 is a previous-token head"]
    whole = it.audit("toy:induction", claims)
    with pytest.raises(InterruptedAnalysis) as stopped:
        it.audit("toy:induction", claims, progress=stopped_at("claim 2"))
    finding = stopped.value.finding
    assert [c.answer for c in finding.claims] == [c.answer for c in whole.claims[:1]]
    assert any("1 of 2" in note for note in finding.notes)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGTERM")
def test_a_signal_to_end_shows_the_first_stage(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time\n"
        "from interp_toolkit.circuits.edges import search, screened\n"
        "search.MANY = 0\n"
        "plain = screened.selected\n"
        "def slow(*arguments):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "    return plain(*arguments)\n"
        "screened.selected = slow\n"
        "from interp_toolkit.cli.main import main\n"
        "sys.argv = ['interp', 'analyze', 'toy:induction', '--probe', 'circuit', '--json', "
        "'out.json', '--quiet']\n"
        "main()\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout.readline() == "ready\n"
        time.sleep(0.1)
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=60)
    assert run.returncode == 130
    (result,) = json.loads((tmp_path / "out.json").read_text())["results"]
    assert result["status"] == "undecided"
    assert result["edges"][0]["effect"] is None
