"""The report in a real browser: what one can ask it, and that it stays readable, silent and whole."""

import pytest

from rftlab.studies.data.results.verdicts import Claim, ClaimFinding, judged
from rftlab.studies.report.report import write_report
from tests.support.web.browser import HOSTILE, until
from tests.support.web.reports import CHOSEN, PAIRS, TINY, curves_of, part, parts_of, with_metrics

FOLDED = "return [...document.querySelectorAll('.fold > :not(summary)')].map(e => e.checkVisibility())"
"""Whether what is folded can be seen."""
FEW_AND_MORE = "<section id='theory'><details><summary>1 more</summary><p>a number</p></details></section>"
"""As the section on theory folds the rest of a long check."""
SHOWN = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())"


def hostile_findings(pairs):
    """A claim for each hostile name, in all its texts."""
    findings = []
    for i, text in enumerate(HOSTILE):
        parts = parts_of((-0.3,), text)
        claim, one = Claim(f"{i} {text}", text, parts_of, remark=text), judged(parts, [])
        findings += [ClaimFinding(claim, pair, parts, one, tuple(parts), one, text) for pair in pairs]
    return findings


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two simulated pairs with a small language model beside them."""
    main = part(curves_of(PAIRS[:2], seeds=3))
    beside = part(with_metrics(curves_of(TINY[:1], seeds=3)), level="llm")
    folder = tmp_path_factory.mktemp("report")
    return write_report(folder, CHOSEN, main, beside, {"command": "x"}, ["a note"], theory=lambda: FEW_AND_MORE)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A report whose every text from outside is hostile."""
    curves = curves_of(PAIRS[:1], seeds=2)
    main = part(curves, findings=hostile_findings(PAIRS[:1]), diverged=list(HOSTILE))
    about = {f"{i} {text}": text for i, text in enumerate(HOSTILE)}
    return write_report(tmp_path_factory.mktemp("hostile"), CHOSEN, main, None, about, list(HOSTILE))


def test_a_mark_tells_its_numbers(browser, report):
    browser.open(report)
    plot = "section#tradeoff .panel[data-pair='qwen-gsm8k'] svg.plot"
    browser.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", plot)
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    row, shown, lines = browser.run(
        "const plot = document.querySelector(arguments[0]);"
        "const row = JSON.parse(plot.querySelector('g.s[data-split=\"test\"]').dataset.v)[3];"
        "const at = new DOMPoint(row[0], row[1]).matrixTransform(plot.getScreenCTM());"
        "plot.dispatchEvent(new PointerEvent('pointermove', {clientX: at.x, clientY: at.y, bubbles: true}));"
        "const tip = document.querySelector('#tip');"
        "return [row, tip.checkVisibility(), [...tip.querySelectorAll('div')].map(e => e.textContent)]",
        plot,
    )
    told = f"Pass@1 after training: {row[3]:g} [{row[4]:g}, {row[5]:g}]"
    assert shown and lines == ["Qwen · GSM8K", "test", "(batch size, rollouts): (8, 32)", told]
    browser.run("scrollBy(0, 300)")
    until(lambda: not browser.one("#tip").is_displayed(), "the end of the tip")
    assert browser.seen() == ([], [])


def test_arrow_keys_walk_from_mark_to_mark(browser, report):
    from selenium.webdriver.common.keys import Keys

    browser.open(report)
    browser.run("document.querySelectorAll('section#tradeoff details').forEach((one) => { one.open = true; })")
    plot = browser.one("section#tradeoff svg.plot")
    browser.run("arguments[0].focus()", plot)
    for key, mark in ((Keys.ARROW_RIGHT, "(1, 256)"), (Keys.ARROW_RIGHT, "(2, 128)"), (Keys.ARROW_LEFT, "(1, 256)")):
        plot.send_keys(key)
        until(lambda mark=mark: mark in browser.one("#tip").text, mark)
    plot.send_keys(Keys.ESCAPE)
    until(lambda: not browser.one("#tip").is_displayed(), "the end of the tip")


@pytest.mark.parametrize(
    ("fact", "value", "gone", "stays"),
    [
        ("pair", "qwen-gsm8k", ".panel[data-pair='qwen-gsm8k']", ".panel[data-pair='llama-gsm8k']"),
        ("experiment", "tradeoff", "section#tradeoff", "section#baseline"),
        ("level", "llm", "div[data-level='llm']", "div[data-level='sim']"),
        ("split", "train", "td[data-split='train']", "td[data-split='test']"),
    ],
)
def test_a_filter_hides_what_it_is_asked_to(browser, report, fact, value, gone, stays):
    browser.open(report)
    before = browser.shown(gone), browser.shown(stays)
    assert min(before) > 0
    browser.run(
        "document.querySelector(`#filters input[name='${arguments[0]}'][value='${arguments[1]}']`).click()", fact, value
    )
    assert (browser.shown(gone), browser.shown(stays)) == (0, before[1])
    count = browser.one(f"#filters [data-count='{fact}']").get_attribute("textContent")
    whole = len(browser.all(f"#filters input[name='{fact}']"))
    assert count.endswith(f" of {whole}")
    browser.run("document.querySelector(`#filters [data-all='${arguments[0]}']`).click()", fact)
    assert (browser.shown(gone), browser.shown(stays)) == before


CHECKED = "return [...document.querySelectorAll('#filters input:checked')].map(e => e.name + '=' + e.value)"


def test_a_choice_of_filters_is_in_the_link(browser, report):
    browser.open(report)
    every = browser.run(CHECKED)
    browser.run("document.querySelector(\"#filters input[name='pair'][value='qwen-gsm8k']\").click()")
    browser.run("document.querySelector(\"#filters [data-all='level']\").click()")  # all of them are on: none
    browser.run("document.querySelector(\"#filters [data-all='level']\").click()")
    browser.run("document.querySelector(\"#filters input[name='split'][value='test']\").click()")
    link, chosen = browser.run("return location.href"), browser.run(CHECKED)
    assert link.endswith("#pair=llama-gsm8k&pair=tiny-mix97&split=train") and set(chosen) < set(every)
    browser.driver.get("about:blank")
    browser.driver.get(link)
    assert browser.run(CHECKED) == chosen and browser.shown("section#tradeoff .panel[data-pair='qwen-gsm8k']") == 0
    browser.run("location.hash = '#tradeoff'")
    assert browser.run(CHECKED) == chosen
    for strange in ("pair=%3Cscript%3E&x=y", "pair=nobody", "=", "%"):
        browser.run("location.hash = arguments[0]; dispatchEvent(new Event('hashchange'))", f"#={strange}")
        assert browser.run(CHECKED) == every
    assert browser.seen() == ([], [])


def test_a_click_on_a_heading_sorts_by_it(browser, report):
    browser.open(report)
    table = "section#tradeoff div[data-level='sim'] table.endpoints"
    browser.run("document.querySelector(arguments[0] + ' th:nth-child(3) button').click()", table)
    values = [float(cell.split()[0].split("±")[0]) for cell in browser.run(SHOWN, f"{table} tbody td:nth-child(3) b")]
    assert values == sorted(values) and len(values) == 10
    browser.run("document.querySelector(arguments[0] + ' th:nth-child(3) button').click()", table)
    turned = [float(cell) for cell in browser.run(SHOWN, f"{table} tbody td:nth-child(3) b")]
    assert turned == values[::-1] and browser.one(f"{table} th:nth-child(3)").get_attribute("aria-sort") == "descending"
    browser.run("document.querySelector(arguments[0] + ' th:first-child button').click()", table)
    assert browser.run(SHOWN, f"{table} tbody th")[:2] == ["(1, 256)", "(2, 128)"]


def test_the_page_follows_the_system_and_the_switch(browser, report):
    background = "return getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(255, 255, 255)", "rgb(20, 24, 29)"
    for theme, own, other in (("light", light, dark), ("dark", dark, light)):
        browser.open(report, theme=theme)
        browser.run("localStorage.clear()")
        browser.open(report, theme=theme)
        assert browser.run(background) == own
        browser.one("#theme").click()
        until(lambda other=other: browser.run(background) == other, "the other theme")
        browser.open(report, theme=theme)
        assert browser.run(background) == other  # it is kept
        browser.run("localStorage.clear()")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_fits_and_is_accessible(browser, report, width, theme):
    browser.open(report, width, theme)
    browser.sound()
    assert all(browser.run(FOLDED))


def test_panels_stack_and_claims_are_cards_on_a_phone(browser, report):
    places = "return [...document.querySelectorAll('section#tradeoff .panel')].map(e => e.getBoundingClientRect().left)"
    card = "return getComputedStyle(document.querySelector('.matrix tbody tr')).display"
    browser.open(report, 1400)
    titles = browser.run("return [...document.querySelectorAll('main h2')].map(e => e.textContent)")
    assert titles[0] == "So what should I choose?", "the report leads with the answer and is a few screens tall"
    assert browser.run("return document.documentElement.scrollHeight") < 4500
    assert len(set(browser.run(places))) > 1 and browser.run(card) == "table-row"
    browser.open(report, 390)
    assert len(set(browser.run(places))) == 1 and browser.run(card) == "block"
    assert browser.shown(".matrix thead th") == 0 or browser.one(".matrix thead").size["width"] <= 1


def test_a_printer_gets_all_of_it_in_light(browser, report):
    browser.open(report, theme="dark")
    browser.run("document.querySelector(`#filters input[value='qwen-gsm8k']`).click()")
    hidden = browser.shown(".panel[data-pair='qwen-gsm8k']")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert hidden == 0 and browser.shown(".panel") == len(browser.all(".panel")) > 10
    assert browser.shown("#tools") == 0
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.open(report, media="print")
    assert len(browser.run(FOLDED)) > 5 and all(browser.run(FOLDED)), "what is folded is printed"
    assert browser.run("return document.querySelector('#theory p').checkVisibility()")
    pdf = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    assert pdf.startswith("JVBERi0") and len(pdf) > 50_000


@pytest.mark.parametrize("width", [390, 1400])
def test_what_one_reads_seldom_is_folded_and_opens_when_asked(browser, report, width):
    browser.open(report, width)
    assert len(browser.run(FOLDED)) > 5 and not any(browser.run(FOLDED))
    table = "section#tradeoff div[data-level='sim'] table.endpoints"
    assert not browser.run("return document.querySelector(arguments[0]).checkVisibility()", table)
    tall = browser.run("return document.documentElement.scrollHeight")
    for inside in ("", " > .fold"):  # the experiment, then the curves and the table in it
        for summary in browser.all(f"section#tradeoff div[data-level='sim']{inside} > .fold > summary"):
            summary.send_keys(" ")
    until(lambda: browser.run("return document.querySelector(arguments[0]).checkVisibility()", table), "the table")
    until(lambda: browser.run("return document.documentElement.scrollHeight") > tall + 500, "room for it")
    browser.driver.refresh()
    assert not any(browser.run(FOLDED))  # nothing is remembered


def test_what_is_looked_for_opens_where_it_is(browser, report):
    """A text in the address is found as the browser's own search finds it."""
    browser.open(report)
    browser.driver.get("about:blank")
    browser.driver.get(f"{report.resolve().as_uri()}#:~:text=its%2095%25%20half%2Dwidth")
    opened = "return document.querySelectorAll('.fold[open]').length"
    until(lambda: browser.run(opened), "a fold that holds it")
    assert browser.run(opened) == 2  # the table, and the experiment that it is of


def test_the_contents_are_at_the_top_and_in_reach_on_a_phone(browser, report):
    browser.open(report, 390)
    assert browser.run("return document.querySelector('#contents').getBoundingClientRect().bottom") < 900
    browser.run("document.querySelector('#method').scrollIntoView()")
    browser.one(".up a").click()
    top = "return document.querySelector('#contents').getBoundingClientRect().top"
    until(lambda: 0 <= browser.run(top) < 100, "the contents")


def test_without_scripts_all_is_there_but_the_tools(browser, report):
    browser.open(report, scripts=False)
    try:
        boxes, folds = (heights(browser, query) for query in (".panel, table, #tools, button.sort", ".fold"))
        assert len(boxes) > 20 and boxes.count(0) == 1  # the tools
        assert len(folds) > 5 and min(folds) > 100  # more than its heading
    finally:
        browser.open(report)


def heights(browser, query):
    """Heights of elements, asked without running a script."""
    from selenium.common.exceptions import WebDriverException

    ask, found = browser.driver.execute_cdp_cmd, []
    where = {"nodeId": ask("DOM.getDocument", {"depth": 0})["root"]["nodeId"], "selector": query}
    for node in ask("DOM.querySelectorAll", where)["nodeIds"]:
        try:
            found.append(ask("DOM.getBoxModel", {"nodeId": node})["model"]["height"])
        except WebDriverException:
            found.append(0)
    return found


@pytest.mark.parametrize("width", [390, 1400])
def test_hostile_names_are_shown_and_do_nothing(browser, hostile, width):
    browser.open(hostile, width)
    title = browser.driver.title
    texts = browser.run("return [...document.querySelectorAll('#notes li')].map(e => e.textContent)")
    assert [text.split() for text in texts] == [text.split() for text in HOSTILE]
    browser.run("document.querySelectorAll('th button.sort').forEach(b => b.click())")
    browser.sound()
    assert browser.driver.title == title and title.startswith("rftlab")
