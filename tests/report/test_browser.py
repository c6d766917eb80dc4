"""The page in a real browser, opened as a file: drawn, silent, and alone.

Needs Chromium and its driver; skipped without them, unless INTERP_REQUIRE_BROWSER=1 says that
they have to be there.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from interp_toolkit.plots import CLASS_COLORS
from interp_toolkit.report.html import to_json, write_report
from interp_toolkit.results import Figure

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",  # WebGL without a graphics card, for the 3-D plots
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1000,1400",
)
PAPER = {"light": "#fdfdfc", "dark": "#15181c"}
INK = {"light": "rgb(28, 32, 36)", "dark": "rgb(230, 232, 234)"}
# How many pixels of an image are near a color, and how many colors it has.
COUNT_PIXELS = """
const [url, red, green, blue, done] = arguments;
const image = new Image();
image.onload = () => {
  const canvas = document.createElement("canvas");
  canvas.width = image.width; canvas.height = image.height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, image.width, image.height).data;
  const seen = new Set();
  let near = 0;
  for (let i = 0; i < pixels.length; i += 4) {
    const off = Math.abs(pixels[i] - red) + Math.abs(pixels[i + 1] - green)
              + Math.abs(pixels[i + 2] - blue);
    if (pixels[i + 3] > 200 && off < 60) near += 1;
    seen.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
  }
  done({ near, colors: seen.size, pixels: pixels.length / 4 });
};
image.src = url;
"""
PLOT_IMAGE = """
const done = arguments[arguments.length - 1];
Plotly.toImage(arguments[0], { format: "png" }).then(done);
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Iterator[Any]:
    found = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        reason = f"the browser test needs {' and '.join(missing)} on the PATH"
        if os.environ.get("INTERP_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = found["chromium"]
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SE_OFFLINE", "true")  # selenium looks for no driver of its own
        patch.setenv("SE_AVOID_STATS", "true")
        service = webdriver.ChromeService(executable_path=found["chromedriver"])
        browser = webdriver.Chrome(options=options, service=service)
        try:
            yield browser
        finally:
            browser.quit()


@pytest.fixture
def opened(driver, tmp_path, separable, not_separable) -> Any:
    """The driver on a page with 2-D and 3-D plots, in the light theme, and its logs since then."""
    path = tmp_path / "report.html"
    write_report([not_separable, separable], path)
    open_page(driver, path.as_uri())
    return driver


def open_page(driver, url: str, scheme: str = "light") -> None:
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": "", "features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    driver.get_log("browser"), driver.get_log("performance")
    driver.get(url)
    wait_for(lambda: len(driver.find_elements("css selector", ".plot .main-svg")) > 0)


def wait_for(condition: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the page did not get there in time"
        time.sleep(0.05)


def complaints(driver) -> list[str]:
    """What the console says that is an error, or that the page's policy refused."""
    return [
        entry["message"]
        for entry in driver.get_log("browser")
        if entry["level"] == "SEVERE" or "Content Security Policy" in entry["message"]
    ]


def requests(driver) -> list[str]:
    """The addresses asked for since the page was opened, by any page of the browser.

    What the page's policy stopped is not among them: Chromium logs it, but never sends it.
    """
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    stopped = {
        m["params"]["requestId"]
        for m in messages
        if m["method"] == "Network.loadingFailed" and m["params"].get("blockedReason") == "csp"
    }
    return [
        m["params"].get("request", m["params"])["url"]
        for m in messages
        if m["method"] in {"Network.requestWillBeSent", "Network.webSocketCreated"}
        and m["params"]["requestId"] not in stopped
    ]


def rgb(color: str) -> list[int]:
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def pixels(driver, url: str, color: str) -> dict[str, int]:
    return driver.execute_async_script(COUNT_PIXELS, url, *rgb(color))


def screenshot(driver, color: str) -> dict[str, int]:
    return pixels(driver, f"data:image/png;base64,{driver.get_screenshot_as_base64()}", color)


def tick_color(driver) -> str:
    tick = driver.find_element("css selector", ".plot .xtick text")
    return tick.value_of_css_property("fill")


def open_groups(driver) -> None:
    """Open everything that can be opened, by its summary, and wait for what is drawn then."""
    for summary in driver.find_elements("css selector", "details:not([open]) > summary"):
        summary.send_keys("\ue007")  # Enter: by keyboard as well as by mouse
    wait_for(
        lambda: (
            len(driver.find_elements("css selector", ".plot .main-svg"))
            >= len(driver.find_elements("css selector", ".plot"))
        )
    )


def test_what_is_closed_is_drawn_when_it_is_opened(opened):
    flat, deep, other = opened.find_elements("css selector", ".plot")
    assert [len(p.find_elements("css selector", ".main-svg")) > 0 for p in (flat, deep, other)] == [
        *(True, False, True)
    ]
    open_groups(opened)
    assert deep.find_element("css selector", ".gl-container canvas").size["width"] > 300
    assert complaints(opened) == []


def test_a_page_is_short_before_anything_is_opened(opened):
    height = "return document.documentElement.scrollHeight"
    before = opened.execute_script(height)
    open_groups(opened)
    assert opened.execute_script(height) > before + 1_000


def test_a_head_in_a_table_leads_to_its_pattern(driver, tmp_path, analyzed):

    path = tmp_path / "heads.html"
    write_report([analyzed("toy:induction", "heads")], path)
    driver.get(path.as_uri())
    wait_for(lambda: driver.find_elements("css selector", ".plot .main-svg"))
    link = driver.find_element("css selector", "a[href^='#figure-']")
    target = driver.find_element("css selector", link.get_attribute("hash"))
    assert not target.is_displayed()  # in a group that is closed
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    wait_for(lambda: target.find_elements("css selector", ".main-svg"))
    assert link.text in target.text
    top = "return arguments[0].getBoundingClientRect().top"
    height = driver.execute_script("return innerHeight")
    wait_for(lambda: -10 < driver.execute_script(top, target) < height / 2)
    assert complaints(driver) == []


def test_a_page_of_many_models_is_short_before_anything_is_opened(driver, tmp_path):
    import interp_toolkit as it

    path = tmp_path / "sorting.html"
    toys = ("min-greater", "argmax", "distinct-trained", "bidirectional-trained", "causal-trained")
    write_report([it.analyze(f"toy:sort-{toy}", "sorting") for toy in toys], path)
    try:
        for width in (390, 1440):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            driver.get(path.as_uri())
            wait_for(lambda: driver.find_elements("css selector", ".plot .main-svg"))
            assert driver.execute_script("return document.documentElement.scrollHeight") < 8_000
            assert complaints(driver) == []
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def cells(driver, column: int) -> list[str]:
    rows = driver.find_elements("css selector", "#result-2 tbody tr")
    shown = [row for row in rows if row.is_displayed()]
    return [row.find_elements("css selector", "th, td")[column].text for row in shown]


def test_a_table_is_sorted_by_its_headings(opened):
    headings = opened.find_elements("css selector", "#result-2 thead th")
    margin = headings[4].find_element("css selector", "button")
    assert cells(opened, 4) == ["–", "0.2175", "–", "2.00e-13"]
    margin.click()
    assert cells(opened, 4) == ["2.00e-13", "0.2175", "–", "–"]  # by size; what is missing last
    assert headings[4].get_attribute("aria-sort") == "ascending"
    margin.send_keys("\ue007")
    assert cells(opened, 4) == ["0.2175", "2.00e-13", "–", "–"]
    headings[3].find_element("css selector", "button").click()
    assert cells(opened, 3) == ["not separable", "not separable", "separable", "undecided"]
    assert [h.get_attribute("aria-sort") for h in headings].count("ascending") == 1


def test_a_long_table_is_filtered_and_copied_as_shown(driver, tmp_path, separable):
    sites = [
        (f"blocks.{n}.hook_resid_post", n, "AND" if n % 2 else "XOR", "separable", 0.1 * n, 1.0)
        for n in range(20)
    ]
    path = tmp_path / "long.html"
    write_report([replace(separable, sites=sites)], path)
    open_page(driver, path.as_uri())
    field = driver.find_element("css selector", ".tools input")
    field.send_keys("and blocks.1")
    status = driver.find_element("css selector", ".tools [role=status]")
    assert status.text == "6 of 20"  # 1, 11, 13, 15, 17, 19
    driver.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
    )
    copy = driver.find_element("css selector", ".tools button")
    copy.click()
    wait_for(lambda: copy.text == "Copied")
    read = "navigator.clipboard.readText().then(arguments[arguments.length - 1])"
    lines = driver.execute_async_script(read).splitlines()
    assert lines[0].split("\t") == ["hook", "position", "function", "status", "margin", "accuracy"]
    assert [line.split("\t")[1] for line in lines[1:]] == ["1", "11", "13", "15", "17", "19"]
    field.clear()
    field.send_keys(" ")
    assert status.text == ""
    assert complaints(driver) == []


def test_on_a_phone_the_name_and_the_outcome_stay_in_sight(driver, tmp_path, separable):
    long = "blocks.0.attn.hook_result.of.a.head.with.a.long.name"
    sites = [(long, 2, "XOR", "separable", 0.2, 1.0)] * 3
    path = tmp_path / "phone.html"
    write_report([replace(separable, sites=sites)], path)
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        open_page(driver, path.as_uri())
        box = driver.find_element("css selector", ".table")
        first, deciding = (
            box.find_element("css selector", f"tbody tr:nth-child(2) {tag}")
            for tag in ("th", "td.deciding")
        )
        for scrolled in (0, 200, 5_000):
            driver.execute_script("arguments[0].scrollLeft = arguments[1]", box, scrolled)
            for cell in (first, deciding):
                left, right = driver.execute_script(
                    "const r = arguments[0].getBoundingClientRect(); return [r.left, r.right]", cell
                )
                assert 0 <= left < right <= 390
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_plots_are_drawn(opened):
    open_groups(opened)
    flat, deep, _ = opened.find_elements("css selector", ".plot")
    for plot in (flat, deep):
        svg = plot.find_element("css selector", ".main-svg")
        assert svg.size["width"] > 300
        assert svg.size["height"] > 300
    traces = flat.find_elements("css selector", ".scatterlayer .trace")
    assert len(traces) == 5
    assert len(flat.find_elements("css selector", ".scatterlayer .point")) == 5
    labels = flat.find_elements("css selector", ".scatterlayer .textpoint")
    assert sorted(label.text for label in labels) == ["00", "01", "10", "11"]
    for color in CLASS_COLORS:
        image = opened.execute_async_script(PLOT_IMAGE, flat)
        assert pixels(opened, image, color)["near"] > 100

    canvas = deep.find_element("css selector", ".gl-container canvas")
    assert canvas.size["width"] > 300
    assert canvas.size["height"] > 300
    image = opened.execute_async_script(PLOT_IMAGE, deep)
    assert pixels(opened, image, CLASS_COLORS[1])["near"] > 30


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_serious_finding(opened, scheme):
    axe = pytest.importorskip("axe_core_python.base")
    open_page(opened, opened.current_url, scheme)
    open_groups(opened)
    opened.execute_script(axe.AXE_SCRIPT)
    found = opened.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 15  # it did look
    serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
    assert [(v["id"], [node["html"] for node in v["nodes"]][:2]) for v in serious] == []


def test_the_console_is_silent_and_nothing_is_fetched(opened):
    opened.find_element("id", "theme").click()
    opened.execute_script("window.scrollTo(0, document.body.scrollHeight)")
    time.sleep(0.5)
    assert complaints(opened) == []
    asked = requests(opened)
    assert any(url.endswith("report.html") for url in asked)  # the log does log
    outside = [url for url in asked if url.split(":")[0] not in {"file", "data", "blob"}]
    assert outside == []


def test_nothing_offers_to_send_a_plot_away(opened):
    buttons = opened.find_elements("css selector", ".modebar-btn")
    titles = {button.get_attribute("data-title") for button in buttons}
    assert len(buttons) == 4
    assert {title.split()[-1] for title in titles} == {"PNG", "SVG"}
    assert not opened.find_elements("css selector", ".plot a[href^=http]")


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_the_page_and_its_plots_follow_the_system_and_then_the_button(opened, scheme, other):
    open_page(opened, opened.current_url, scheme)
    shot = screenshot(opened, PAPER[scheme])
    assert shot["near"] > shot["pixels"] / 2
    assert shot["colors"] > 50
    assert tick_color(opened) == INK[scheme]

    button = opened.find_element("id", "theme")
    assert button.text == f"{other.capitalize()} theme"
    button.send_keys("\ue007")  # Enter: by keyboard as well as by mouse
    wait_for(lambda: tick_color(opened) == INK[other])
    shot = screenshot(opened, PAPER[other])
    assert shot["near"] > shot["pixels"] / 2
    assert shot["colors"] > 50
    assert button.text == f"{scheme.capitalize()} theme"
    assert len(opened.find_elements("css selector", ".plot .scatterlayer .trace")) == 10
    assert complaints(opened) == []


def test_a_plot_is_saved_as_vectors(opened, tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    opened.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    button = opened.find_element("css selector", '#plot-1 [data-title="Download plot as an SVG"]')
    opened.execute_script("arguments[0].click()", button)
    saved = folder / "plot.svg"
    wait_for(saved.exists)
    assert "<svg" in saved.read_text()[:200]
    assert complaints(opened) == []


def test_a_zoom_outlives_a_change_of_theme(opened):
    from selenium.webdriver import ActionChains

    shown = "return document.getElementById('plot-1')._fullLayout.xaxis.range"
    before = opened.execute_script(shown)
    area = opened.find_element("css selector", "#plot-1 .nsewdrag")
    ActionChains(opened).drag_and_drop_by_offset(area, 80, 60).perform()
    wait_for(lambda: opened.execute_script(shown) != before)
    zoomed = opened.execute_script(shown)
    assert zoomed[1] - zoomed[0] < (before[1] - before[0]) / 2
    opened.find_element("id", "theme").click()
    wait_for(lambda: tick_color(opened) == INK["dark"])
    assert opened.execute_script(shown) == pytest.approx(zoomed)


def test_print_is_light_open_and_fits_the_paper(opened):
    opened.find_element("id", "theme").click()
    opened.execute_script("dispatchEvent(new Event('beforeprint'))")
    state = (
        "return [document.documentElement.dataset.theme,"
        " document.querySelectorAll('details[open]').length,"
        " document.querySelector('#plot-1 .main-svg').getBoundingClientRect().width]"
    )
    assert opened.execute_script(state) == ["light", 5, 640]
    opened.execute_script("dispatchEvent(new Event('afterprint'))")
    assert opened.execute_script(state)[:2] == ["dark", 0]
    wait_for(lambda: opened.execute_script(state)[2] > 640, seconds=5)


@pytest.mark.parametrize("width", [320, 700, 1600])
def test_the_page_never_scrolls_sideways(opened, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    opened.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    try:
        wait_for(
            lambda: (
                opened.execute_script(
                    "return document.documentElement.scrollWidth <= innerWidth && innerWidth"
                )
                == width
            )
        )
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# What lies outside the page or its plot without a box that scrolls, and headings on one another.
MISPLACED = """
const misplaced = [];
const page = document.documentElement.clientWidth;
const scrolls = (element) => {
  for (let e = element; e && e !== document.body; e = e.parentElement) {
    if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)) return true;
  }
  return false;
};
const name = (e) => `${e.tagName} ${e.textContent.trim().slice(0, 40)}`;
for (const element of document.body.querySelectorAll("*:not(.plot *, svg, svg *)")) {
  const box = element.getBoundingClientRect();
  if (box.width && (box.left < -1 || box.right > page + 1) && !scrolls(element)) {
    misplaced.push(["off the page", name(element)]);
  }
}
for (const plot of document.querySelectorAll(".plot")) {
  const edge = plot.querySelector(".main-svg").getBoundingClientRect();
  const boxes = [...plot.querySelectorAll("svg text")].map((e) => [e, e.getBoundingClientRect()])
    .filter(([, box]) => box.width);
  for (const [text, box] of boxes) {
    if (box.left < edge.left - 1 || box.right > edge.right + 1
      || box.top < edge.top - 1 || box.bottom > edge.bottom + 1) {
      misplaced.push([`clipped in ${plot.id}`, name(text)]);
    }
  }
  const headings = boxes.filter(([text]) => text.matches(".annotation-text"));
  headings.forEach(([a, p], i) => headings.slice(i + 1).forEach(([b, q]) => {
    const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (across > 1 && down > 3) misplaced.push([name(a), `on ${name(b)}`]);
  }));
}
return misplaced;
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize(
    ("toy", "probes"),
    [
        ("toy:induction", ("heads", "circuit", "patching", "logit-attribution")),
        ("toy:xor-2head", ("xor",)),
    ],
)
def test_nothing_is_clipped_or_off_the_page(driver, tmp_path, analyzed, toy, probes, width):
    path = tmp_path / "toys.html"
    write_report([analyzed(toy, probe) for probe in probes], path)
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        open_page(driver, path.as_uri())
        open_groups(driver)
        assert driver.execute_script(MISPLACED) == []
        wide = "filter((box) => box.scrollWidth > box.clientWidth + 1)"
        boxes = driver.execute_script(f"return [...document.querySelectorAll('.table')].{wide}")
        if width == 390:
            assert boxes  # they scroll, and say so
        for box in boxes:
            tools = driver.execute_script("return arguments[0].previousElementSibling", box)
            count = tools.find_element("css selector", ".more")
            assert int(count.text.split()[0]) > 0
            driver.execute_script("arguments[0].scrollLeft = arguments[0].scrollWidth", box)
            wait_for(lambda count=count: count.text == "")
        assert complaints(driver) == []
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_without_decompression_the_page_tells_so_and_keeps_its_tables(driver, opened):
    hide = {"source": "delete globalThis.DecompressionStream;"}
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", hide)
    try:
        driver.get(driver.current_url)
        wait_for(lambda: driver.find_elements("css selector", ".plot.undrawn"))
        assert len(driver.find_elements("css selector", ".plot.undrawn")) == 3
        assert driver.find_element("css selector", "#result-2 .table .sort").is_displayed()
    finally:
        removed = {"identifier": script["identifier"]}
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", removed)
        driver.get_log("browser")


def test_the_numbers_can_be_saved(opened, tmp_path, separable, not_separable):
    folder = tmp_path / "saved"
    folder.mkdir()
    opened.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    opened.find_element("id", "save").click()
    saved = folder / "results.json"
    wait_for(saved.exists)
    assert json.loads(saved.read_text()) == to_json([not_separable, separable])


def test_a_hostile_name_does_not_run(driver, tmp_path, separable):
    attack = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    [figure] = separable.plots
    traces = [{**trace, "name": attack, "text": [attack] * 4} for trace in figure.data]
    layout = {"title": {"text": attack}, "images": [{"source": "https://example.org/a.png"}]}
    source = separable.provenance
    result = replace(
        separable,
        verdict=attack,
        provenance=replace(source, model={"name": attack}),
        plots=[Figure(attack, attack, traces, layout)],
    )
    path = tmp_path / "hostile.html"
    write_report([result], path)
    open_page(driver, path.as_uri())
    time.sleep(0.3)
    assert driver.execute_script("return window.hacked") is None
    assert driver.find_element("tag name", "h1").text == attack
    assert not [url for url in requests(driver) if url.startswith("http")]
