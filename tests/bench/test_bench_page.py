"""The page and the Markdown of a result: whole, safe, and with every figure from the JSON."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from trainingkit.bench.network.spec import Measured, NetworkSpec
from trainingkit.bench.network.summary import summarise
from trainingkit.bench.result import Result, make_check, make_result
from trainingkit.bench.stats import Interval
from trainingkit.core.errors import ConfigError
from trainingkit.report.benchmarkdown import render_markdown
from trainingkit.report.benchpage import render_bench, write_bench_page

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
PLOTS = ["bytes", "kept", "loss-steps", "loss-time", "step"]
NASTY = "</script><img src=x onerror=\"document.title='taken'\">"


def network(**more) -> Result:
    names = ("none", "none again", "squeezed", "plain")
    costs = {"none": 1.0, "none again": 1.0, "squeezed": 1.02, "plain": 5.0}
    curve = [[0, 5.5], [5, 4.0], [10, 3.2]]
    found = Measured(
        labels={name: f"label of {name}" for name in names},
        seconds={name: {n: costs[name] * (1 + n / 100) for n in range(8)} for name in names},
        wire_bytes={"squeezed": [8.7e6] * 3, "plain": [65e6] * 3},
        said_bytes={"squeezed": [8.4e6] * 3, "plain": [64.9e6] * 3},
        losses={"squeezed": curve, "plain": curve},
        facts={"parameters": 10_818_432, "compute": "bf16"},
        rounds=8,
    )
    found.labels["plain"] = more.pop("label", "plain DDP, fp32 wire")
    return summarise(NetworkSpec(delay_s=0.02), found, command="trainingkit bench network --delay 20ms")


def test_the_page_says_what_was_found_and_fetches_nothing():
    page = render_bench(network())
    for text in ("network bench: 4 hosts, 100mbit, 20 ms delay", "all checks hold", "8.7 MB", "7.5 times as much"):
        assert text in page
    assert "trainingkit bench network --delay 20ms" in page
    assert 'src="http' not in page
    assert "too noisy" not in page.split("</main>")[0]


def test_a_result_without_contenders_has_checks_and_rows_only():
    checks = [make_check("encode_vs_copy all|int4", Interval(0.5, 0.45, 0.55), ">= 0.4")]
    rows = [{"verb": "encode", "median_s": 0.02, "fp32_gb_per_s": 3.25}]
    result = make_result("codec", command="trainingkit bench codec", checks=checks, rows=rows)
    page = render_bench(result)
    assert "encode_vs_copy all|int4" in page
    assert "20 ms" in page
    assert '<div class="plot"' not in page
    text = render_markdown("Codecs", [result])
    assert "| encode_vs_copy all\\|int4 | 0.500 | 0.450 to 0.550 | ratio | >= 0.4 | yes |" in text


def test_markdown_has_date_command_machine_and_rho():
    result = network()
    text = render_markdown("Network", [result, result])
    assert text.count("## Network bench: 4 hosts, 100mbit, 20 ms delay") == 2
    for part in (result.date, f"`{result.command}`", result.machine["cpu"], "rho: 4.00", "| kept_share | 0.980 |"):
        assert part in text
    assert "8.7 MB | 8.4 MB | 3.2000" in text


def test_a_page_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="page cannot be written"):
        write_bench_page(network(), tmp_path / "file" / "page.html")


def test_it_draws_in_a_browser_and_text_stays_text(tmp_path: Path):
    options = Options()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    path = tmp_path / "page.html"
    write_bench_page(network(label=NASTY), path)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver") or ""))
    try:
        size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(path.as_uri())
        drawn = "return [...document.querySelectorAll('.plot')].map(p => [p.id, p.dataset.drawn])"
        WebDriverWait(browser, 30).until(lambda b: all(state for _, state in b.execute_script(drawn)))
        assert sorted(browser.execute_script(drawn)) == [[name, "true"] for name in PLOTS]
        assert browser.title == "network bench: 4 hosts, 100mbit, 20 ms delay - TrainingKit"
        assert browser.execute_script("return document.querySelectorAll('img, a[href]').length") == 0
        assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
        assert browser.get_log("browser") == []
        wider = "const d = document.documentElement; return d.scrollWidth - d.clientWidth;"
        assert browser.execute_script(wider) == 0
    finally:
        browser.quit()
