"""The report's page in a browser: it opens without errors or requests, figures draw, legends and filters work."""

import json
import shutil

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from fedbandit_jax.report import contents as report
from tests.reports import reproduction

pytestmark = pytest.mark.thorough

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    page = report.write(reproduction(tmp_path_factory.mktemp("page"), experiments=("multi", "clients")))
    return page.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if DRIVER is None or BROWSER is None:
        pytest.skip("there is no Chromium with its chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1300,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, address):
    """The page, with its first figures drawn."""
    browser.get(address)
    first = browser.find_element(By.CSS_SELECTOR, "figure")
    browser.execute_script("arguments[0].scrollIntoView()", first)
    wait(browser, lambda: first.get_attribute("data-drawn") == "yes")
    return browser


def wait(browser, condition):
    WebDriverWait(browser, 20, poll_frequency=0.05).until(lambda _: condition())


def curves(figure):
    """Traces on the screen: a curve and a band each."""
    return len(figure.find_elements(By.CSS_SELECTOR, ".scatterlayer .trace"))


def test_the_page_opens_without_errors_or_requests(page, address):
    told = [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert not told
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    asked = {e["request"]["url"] for e in sent if e["documentURL"] == address}
    assert address in asked
    assert all(url == address or url.startswith(("data:", "blob:")) for url in asked), asked


def test_figures_draw_as_they_are_reached(page):
    figures = page.find_elements(By.CSS_SELECTOR, "figure")
    assert len(figures) == 4
    for figure in figures:
        page.execute_script("arguments[0].scrollIntoView()", figure)
        wait(page, lambda figure=figure: figure.get_attribute("data-drawn") == "yes")
        assert curves(figure) == 6
        names = [text.text for text in figure.find_elements(By.CSS_SELECTOR, ".legendtext")]
        assert [name.split(":")[0] for name in names] == ["FedConPE", "LinUCB", "ConUCB"]
        width = figure.find_element(By.CSS_SELECTOR, ".main-svg").rect["width"]
        assert 300 < width <= figure.rect["width"]


def test_a_click_in_the_legend_hides_a_curve_and_its_band(page):
    figure = page.find_element(By.CSS_SELECTOR, "figure")
    assert curves(figure) == 6
    for left in (4, 6):
        toggle = figure.find_elements(By.CSS_SELECTOR, ".legendtoggle")[1]
        ActionChains(page).move_to_element(toggle).click().perform()
        wait(page, lambda left=left: curves(figure) == left)
        shown = page.execute_script(
            "return arguments[0]._fullData.filter(t => t.visible === true).map(t => t.legendgroup)",
            figure.find_element(By.CSS_SELECTOR, ".plot"),
        )
        assert ("LinUCB" in shown) == (left == 6)


def test_an_axis_can_be_logarithmic(page):
    figure = page.find_element(By.CSS_SELECTOR, "figure")
    button = figure.find_element(By.TAG_NAME, "button")
    plot = figure.find_element(By.CSS_SELECTOR, ".plot")
    for scale in ("log", "linear"):
        button.click()
        wait(page, lambda scale=scale: page.execute_script("return arguments[0]._fullLayout.yaxis.type", plot) == scale)
        assert button.get_attribute("aria-pressed") == str(scale == "log").lower()


def test_filters_choose_rows_and_figures(page):
    preset = next(s for s in page.find_elements(By.TAG_NAME, "select") if s.get_attribute("data-filter") == "preset")
    Select(preset).select_by_visible_text("released")
    shown = [f.get_attribute("id") for f in page.find_elements(By.TAG_NAME, "figure") if f.is_displayed()]
    assert shown == ["multi-released-synthetic", "clients-released-synthetic"]
    rows = [row for row in page.find_elements(By.CSS_SELECTOR, ".verdicts tbody tr") if row.is_displayed()]
    assert [row.find_element(By.CSS_SELECTOR, ".pill").text for row in rows] == ["? undecided"]
    headings = [h.text for h in page.find_elements(By.TAG_NAME, "h2") if h.is_displayed()]
    assert "The theorems" not in headings


@pytest.mark.parametrize("width", [360, 800, 1600])
def test_nothing_sticks_out(page, width):
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    wait(page, lambda: page.execute_script("return document.documentElement.scrollWidth <= innerWidth"))
    figure = page.find_element(By.TAG_NAME, "figure")
    wait(page, lambda: figure.find_element(By.CSS_SELECTOR, ".main-svg").rect["width"] <= figure.rect["width"])
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
