"""The page in a real browser, from file://: every plot drew, nothing was fetched, nothing overflows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import report_runs as runs
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from trainingkit.core.records import Record
from trainingkit.report import write

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PLOTS = ["loss-step", "loss-time", "throughput", "bytes", "phases", "ranks"]
SETTLED = """
const plots = [...document.querySelectorAll('.plot')];
return plots.length > 0 && plots.every(plot => plot.dataset.drawn !== undefined);
"""
SHAPES = """
return Object.fromEntries([...document.querySelectorAll('.plot')].map(plot => {
  const drawn = plot.querySelectorAll('svg .plot path, svg .scatterlayer path, svg .barlayer path');
  const sized = [...drawn].filter(path => {const b = path.getBBox(); return b.width + b.height > 0;});
  return [plot.id, [plot.dataset.drawn, sized.length]];
}));
"""


def tool(*names: str) -> str:
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    pytest.fail(f"This test needs {names[0]}, which is not installed. On Debian: apt install chromium chromium-driver")


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = tool("chromium", "chromium-browser", "google-chrome")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(tool("chromedriver")))
    yield driver
    driver.quit()


def show(browser: webdriver.Chrome, page: Path, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())
    WebDriverWait(browser, 30).until(lambda driver: driver.execute_script(SETTLED))


def overflow(browser: webdriver.Chrome) -> int:
    return browser.execute_script("const d = document.documentElement; return d.scrollWidth - d.clientWidth;")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write(runs.realistic(tmp_path_factory.mktemp("runs") / "stdlib-20261130-120000", hidden=True))


@pytest.mark.parametrize("width", [390, 1280])
def test_every_plot_draws_nothing_is_fetched_and_nothing_overflows(browser, page, width):
    show(browser, page, width)
    shapes = browser.execute_script(SHAPES)
    assert sorted(shapes) == sorted(PLOTS)
    for name, (drawn, paths) in shapes.items():
        assert drawn == "true" and paths > 0, name
    assert browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []
    assert browser.get_log("browser") == []
    assert overflow(browser) == 0
    widths = browser.execute_script("return [...document.querySelectorAll('.plot svg')].map(s => s.clientWidth)")
    assert max(widths) <= width


def test_the_answers_stand_in_the_first_two_screens_of_a_phone(browser, page):
    show(browser, page, 390)
    bottom = browser.execute_script("return document.querySelector('.cards').getBoundingClientRect().bottom")
    assert bottom < 2 * 900


def test_names_from_outside_stay_text_in_the_browser(browser, tmp_path):
    nasty = "<img src=x onerror=\"document.title='taken'\"></script><a href='http://x'>x</a>" + "long" * 60
    rows: dict[int, list[Record]] = {}
    for rank in range(2):
        start = runs.start(rank, 2, host=nasty, model={"name": nasty}, data={"name": nasty})
        steps: list[Record] = [runs.step(n, phases={"forward": 0.2 + 0.2 * rank, nasty: 0.1}) for n in (1, 2)]
        rows[rank] = [start, *steps, runs.event(1, nasty, nasty)]
    show(browser, write(runs.make_run(tmp_path / "run", rows)), 390)
    assert browser.title == "run - TrainingKit run"
    assert browser.execute_script("return document.querySelectorAll('img, a[href]').length") == 0
    assert all(drawn == "true" for drawn, _ in browser.execute_script(SHAPES).values())
    assert browser.get_log("browser") == [] and overflow(browser) == 0


def test_a_plot_that_fails_says_so_in_its_place(browser, page, tmp_path):
    broken = tmp_path / "broken.html"
    text = page.read_text(encoding="utf-8")
    broken.write_text(text.replace('"use strict";\n(function', "Plotly.newPlot = null;\n(function"), encoding="utf-8")
    show(browser, broken, 1280)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.plot')].map(p => [p.dataset.drawn, p.textContent])"
    )
    assert len(boxes) == len(PLOTS)
    assert all(drawn == "false" and text.startswith("This plot could not be drawn: ") for drawn, text in boxes)


def test_dark_mode_redraws_readable_plots(browser, page):
    show(browser, page, 1280)
    colour = "return getComputedStyle(document.querySelector('#loss-step .xtick text')).fill"
    light = browser.execute_script(colour)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    WebDriverWait(browser, 10).until(lambda driver: driver.execute_script(colour) != light)
    assert browser.execute_script(colour) == "rgb(230, 234, 239)"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
