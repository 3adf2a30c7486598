"""Every page of the built book, opened once in a real browser: sound, set, narrow, linked, and readable by all."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import axe_playwright_python
import pytest
from books import HTML, noting

from ppmodel.studies.points import COLUMNS

PAGES = sorted(path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html") if "_static" not in path.parts)
PATTERNS = {"index.html", "explorer.html", "nb/measured.html", "schedules/pairs.html"}
"""One page of each kind: what the theme shows in a narrow window alone, its menus, is the same on all of a kind."""
NARROW, WIDE = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
_AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()

_SET = """async () => {
    if (!document.querySelector('.math')) return [];
    await MathJax.startup.promise;
    const wrong = [...document.querySelectorAll('.math')].filter(
        part => !part.querySelector('mjx-container') || part.querySelector('mjx-merror, [data-mjx-error]'));
    return wrong.map(part => part.textContent);
}"""
_IMAGES = """async () => {
    const images = [...document.images];
    images.forEach(image => { image.loading = 'eager'; });
    await Promise.all(images.map(image => image.decode().catch(() => null)));
    const wrong = images.filter(image =>
        !image.naturalWidth || (image.closest('article')
            ? image.alt.length <= 20 || /_images|[.](png|svg)\\b/.test(image.alt) : !image.hasAttribute('alt')));
    return wrong.map(image => `${image.getAttribute('src')}: ${image.naturalWidth} px, "${image.alt}"`);
}"""
_LEFT = """() => {
    const body = document.querySelector('article') || document.body;
    const wrong = [...document.querySelectorAll('.sphinx-error, .problematic')].map(part => part.outerHTML);
    return wrong.concat(['{{', 'Traceback'].filter(sign => body.innerText.includes(sign)));
}"""
_OVERFLOW = """() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const cut = element => {
        for (let one = element.parentElement; one && one !== document.body; one = one.parentElement)
            if (getComputedStyle(one).overflowX !== 'visible') return true;
        return false;
    };
    const wide = [...document.querySelectorAll('body *')].filter(
        element => element.getBoundingClientRect().right > width + 1 && !cut(element));
    return wide.map(element => `<${element.localName} class="${element.className}">: ` +
        `${Math.round(element.getBoundingClientRect().right)} px`);
}"""
# What looks like two others in such a place, whatever it says, is not measured again: its colours are theirs.
_THIN = r"""() => {
    const seen = new Map();
    const text = />[^<]+|\b(href|id|title|(data|aria)-[a-z]+)="[^"]*"|\brow\d+/g;
    const alike = 'tr, .highlight pre > span, nav li, article li, mjx-container, article :not(button) > p, ' +
        '.sig-param, :not(a) > code.literal, svg text, svg rect, svg path, dl.py, dt.sig > *';
    for (const part of document.querySelectorAll(alike)) {
        let look = part.localName === 'mjx-container' ? 'maths' : part.outerHTML.replace(text, '>.');
        for (let around = part, up = 0; up < 3 && (around = around.parentElement); up++)
            look += ` ${around.localName} ${around.className}`;
        seen.set(look, (seen.get(look) || 0) + 1);
        if (seen.get(look) > 2) part.remove();
    }
    document.head.insertAdjacentHTML('beforeend', '<style>* { transition: none !important }</style>');
}"""
_LOOK = """async ([theme, options]) => {
    document.documentElement.dataset.theme = theme;
    const found = await axe.run(document, {resultTypes: ['violations'], preload: false, ...options});
    return found.violations.filter(fault => ['serious', 'critical'].includes(fault.impact)).flatMap(
        fault => fault.nodes.map(node => `${fault.id} (${theme}): ${node.target.join(' ')}: ` +
            `${[...node.any, ...node.all, ...node.none].map(one => one.message).join(' ')}`));
}"""


def test_the_book_is_built():
    """Pages of prose and of the notebooks; 'make test' builds them first."""
    assert {"nb/bubble.html", "planner.html", "sources.html", "search.html", *PATTERNS} <= set(PAGES)


@pytest.fixture(scope="module")
def shared(browser):
    """A narrow page in which one page after the other is opened, for a new one costs as much as what it shows."""
    with browser.new_context(viewport=NARROW) as context:
        yield noting(context.new_page())


@pytest.mark.long
@pytest.mark.parametrize("name", PAGES)
def test_pages_are_sound(shared, name):
    """Nothing comes from elsewhere, nothing fails or overflows, all is set, and axe-core finds no serious fault."""
    page = shared
    page.thrown.clear()
    page.elsewhere.clear()
    page.set_viewport_size(NARROW)
    page.goto((HTML / name).as_uri())
    faults = {
        "errors": page.thrown,
        "not one h1": [] if page.locator("h1").count() == 1 else page.locator("h1").all_inner_texts(),
        "maths": page.evaluate(_SET),
        "images": page.evaluate(_IMAGES),
        "left over": page.evaluate(_LEFT),
        "wider than the screen": page.evaluate(_OVERFLOW),
    }
    if name.startswith("nb/"):
        code_stays_away(page, name)
    page.evaluate(_THIN)
    page.evaluate(_AXE)
    contrast = {"type": "rule", "values": ["color-contrast"]}
    scrolled = {"type": "rule", "values": ["scrollable-region-focusable"]}
    faults["axe, narrow"] = page.evaluate(_LOOK, ["light", {} if name in PATTERNS else {"runOnly": scrolled}])
    page.set_viewport_size(WIDE)
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # resized
    faults["axe, wide"] = page.evaluate(_LOOK, ["light", {}])
    faults["axe, dark"] = page.evaluate(_LOOK, ["dark", {"runOnly": contrast}])
    faults["requests to elsewhere"] = page.elsewhere
    listed = [f"{kind}: {fault}" for kind, found in faults.items() for fault in found]
    assert not listed, "\n".join(listed)


def code_stays_away(page, name):
    """Until it is asked for, and begins with the parameters; only the few lines that teach are open. Figures count."""
    asked = page.locator(".code-toggle")
    assert asked.count() == (name not in ("nb/tutorial.html", "nb/own-schedule.html"))
    for button in asked.all():
        assert page.locator("article .cell:not(.tag_shown) .cell_input:visible").count() == 0
        opened = page.locator("article .cell_input:visible")
        assert opened.count() == {"nb/table.html": 3, "nb/timeline.html": 2}.get(name, 0)
        assert all(len(text.splitlines()) <= 7 for text in opened.all_inner_texts())
        button.click()
        assert button.get_attribute("aria-expanded") == "true"
    assert "results = " in page.locator("article").inner_text()
    for button in asked.all():
        button.click()  # the choice is kept from page to page
    captions = page.locator("article figure figcaption").all_text_contents()  # also of what is folded
    assert all(text.strip().startswith("Fig. ") for text in captions)


# ---- markup ---------------------------------------------------------------------------------------


class _Text(HTMLParser):
    """What a reader sees of a page as prose, alternative texts included, and what as code."""

    VOID = "br", "col", "hr", "img", "input", "link", "meta", "path", "rect", "source", "wbr"

    def __init__(self, text):
        super().__init__()
        self.open, self.prose, self.cells, self.code = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.prose += [given[key] for key in ("alt", "title", "aria-label") if given.get(key)]
        if tag not in self.VOID:
            self.open.append((tag, (given.get("class") or "").split()))

    def handle_endtag(self, tag):
        while any(tag == name for name, _ in self.open) and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tags = {tag for tag, _ in self.open}
        classes = {name for _, names in self.open for name in names}
        unread = tags & {"script", "style"} or classes & {"math", "sig", "indextable"}
        if "article" in tags and not unread:
            is_code, is_cell = tags & {"code", "pre", "samp"}, tags & {"td", "th"}
            (self.code if is_code else self.cells if is_cell else self.prose).append(data)


MARKUP = re.compile(
    r"""\{[a-z:]+\}|\{\{|`|\*\*\S[^*]*\*\*|:::|__  # roles, substitutions, literals, bold, fences
    |\\\S|\]\(|-->|<[a-z/]+>|&[a-z]+;  # escapes, links, HTML
    |(?<![\w*])\*\w([^*\n]{0,80}\w)?\*(?!\w)|(?<!\w)_\w([^_\n]{0,80}\w)?_(?!\w)  # emphasis
    |\$[a-zA-Z\\]|–[a-z]""",
    re.VERBOSE,
)
"""What was meant as markup, and was not read as such; a dash before a letter was the two hyphens of an option."""
RAW = re.compile(r"\d(\.\d+)?e[-+]\d\d|\b[a-z]+_cp_[a-z]+_nw\b|\b\w+_utilization\b")
"""Numbers and names as programs write them."""
COLUMN_NAMES = {column.name for column in COLUMNS}
RAW_CELL = re.compile(r"\de[-+]\d\d|\b[a-z][a-z0-9]*_[a-z0-9_]+\b")
"""The same in cells, whose names of columns are those of frames beside their code."""
QUOTES = re.compile("[–—‘’“”]")
"""What a theme makes of hyphens and quotation marks, which no command may have."""


def markup_left(text):
    """What no reader should see of a page, and what is around: markup, raw names and numbers, typeset signs in code."""
    page, left = _Text(text), []
    page.cells = [cell for cell in page.cells if cell not in COLUMN_NAMES]
    for parts, forms in ((page.prose, (MARKUP, RAW)), (page.cells, (MARKUP, RAW_CELL))):
        found = ((part, m) for part in parts for form in forms for m in form.finditer(part))
        left += [part[max(0, m.start() - 30) : m.end() + 30] for part, m in found]
    return left + [part for part in page.code if QUOTES.search(part)]


@pytest.mark.parametrize(
    "text",
    [
        "see {doc}`nb/claims`", "{{ take.gain }}", "a `name`", "**bold**", "*so*", "1\\.5", "[here](there)",
        "run –json", "4.328e-15", "<td>1e-06</td>", "<td>blocking_recv</td>", "on fast_cp_slow_nw",
        "the model_flops_utilization", "<code>ppmodel –json</code>", '<img alt="*S* ranks">',
    ],
)  # fmt: skip
def test_markup_that_is_left_is_found(text):
    """In prose, code and alternative texts; nothing is found in code that has such signs, or in a formula."""
    assert markup_left(f"<article><p>{text}</p></article>")
    assert not markup_left("<article><code>a ** b `{x}` \\d</code> <span class='math'>\\(a\\)</span> a < b</article>")


def test_no_markup_is_left():
    """Nor raw names and numbers: on no page of the built book."""
    left = {name: found for name in PAGES if (found := markup_left((HTML / name).read_text()))}
    assert left == {}


def test_pictures_have_words_for_names():
    """The texts of a picture are text in its SVG."""
    texts = {
        path.name: " ".join(re.findall("<text[^>]*>(.*?)</text>", path.read_text()))
        for path in HTML.glob("results/*.svg")
    }
    assert len(texts) > 30
    assert {name: found for name, text in texts.items() if (found := RAW_CELL.findall(text))} == {}


# ---- links ---------------------------------------------------------------------------------------


class _Links(HTMLParser):
    """What a page names: its anchors, and where it leads."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.targets = {""}, set()
        self.feed(text)

    def handle_starttag(self, _, attrs):
        given = dict(attrs)
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        self.targets |= {given[key] for key in ("href", "src") if given.get(key)}


def test_every_internal_link_resolves():
    """Each link to a page, a file or an anchor of the book leads somewhere."""
    pages = {HTML / name: _Links((HTML / name).read_text()) for name in PAGES}
    broken, followed = [], 0
    for path, page in pages.items():
        for link in page.targets:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            if parts.path.endswith("explorer.html"):
                parts = parts._replace(fragment="")  # it says what the explorer shows
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {"", unquote(parts.fragment)}
            followed += 1
            if not target.is_file() or unquote(parts.fragment) not in anchors:
                broken.append(f"{path.relative_to(HTML)}: {link}")
    assert followed > 1000
    assert sorted(broken) == []
