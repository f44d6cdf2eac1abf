"""Drawings inside the page: the SVG that the plot wrote, with points that link to their runs."""

from collections.abc import Mapping
from xml.etree import ElementTree

from markupsafe import Markup

from leakbound.figures.plots.planes import POINT

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"


def has_points(drawing: bytes) -> bool:
    """Return True if points of a drawing carry the names of their runs."""
    return f'id="{POINT}'.encode() in drawing


def embedded(
    drawing: bytes, name: str, title: str, texts: Mapping[str, str], links: Mapping[str, str]
) -> Markup:
    """Embed an SVG drawing as an element of the page.

    Args:
        drawing: The SVG.
        name: Name of the drawing. It is put before all identifiers, so that they are unique in the page.
        title: Title for readers who listen to the page.
        texts: Run to the text that is shown when its point is hovered or focused.
        links: Run to the address of its page.
    """
    root = ElementTree.fromstring(drawing)
    for child in list(root):
        if child.tag == f"{_SVG}metadata":
            root.remove(child)
    for parent in root.iter(f"{_SVG}defs"):
        # A style would apply to the whole page, which has the same one.
        for style in parent.findall(f"{_SVG}style"):
            parent.remove(style)
    for element in root.iter():
        run = element.get("id", "").removeprefix(POINT)
        if run != element.get("id", ""):
            _point(element, run, texts.get(run, run), links.get(run))
        element.tag = element.tag.removeprefix(_SVG)
        attributes = dict(element.attrib)
        element.attrib.clear()
        for key, value in attributes.items():
            if key == "id":
                value = f"{name}-{value}"
            elif key == _HREF:
                key = "href"
                value = f"#{name}-{value[1:]}" if value.startswith("#") else value
            element.set(key, value.replace("url(#", f"url(#{name}-"))
    root.attrib |= {"class": "drawing", "role": "group", "aria-label": title}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _point(element: ElementTree.Element, run: str, text: str, link: str | None) -> None:
    """Make a run's point a link to its page, or without a page an element that can be focused."""
    del element.attrib["id"]
    element.attrib |= {"class": "point", "aria-label": text, "data-run": run}
    if link is None:
        element.attrib |= {"tabindex": "0", "role": "img"}
    else:
        element.tag = "a"
        element.attrib |= {"href": link, "target": "_blank", "rel": "noopener"}
    title = ElementTree.Element("title")
    title.text = text
    element.insert(0, title)
