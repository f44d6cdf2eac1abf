"""Drawings inside the page: the very SVG that the plot wrote, its points leading to their runs."""

from collections.abc import Mapping
from xml.etree import ElementTree

from markupsafe import Markup

from leakbound.figures.plots.planes import POINT

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"


def has_points(drawing: bytes) -> bool:
    """Tell whether points of a drawing name their runs."""
    return f'id="{POINT}'.encode() in drawing


def embedded(
    drawing: bytes, name: str, title: str, texts: Mapping[str, str], links: Mapping[str, str]
) -> Markup:
    """Embed a drawing, SVG, as an element of the page.

    Its name is put before all names within it, so that each is there once in the page. When a run's point is
    pointed at or reached by keyboard, the run's text is shown. Its link is the address of its page.
    """
    root = ElementTree.fromstring(drawing)
    for child in list(root):
        if child.tag == f"{_SVG}metadata":
            root.remove(child)
    for parent in root.iter(f"{_SVG}defs"):
        for style in parent.findall(
            f"{_SVG}style"
        ):  # it would hold for the whole page, whose own style says the same
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
                key, value = "href", f"#{name}-{value[1:]}" if value.startswith("#") else value
            element.set(key, value.replace("url(#", f"url(#{name}-"))
    root.attrib |= {"class": "drawing", "role": "group", "aria-label": title}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _point(element: ElementTree.Element, run: str, text: str, link: str | None) -> None:
    """Make a run's point a link, or something that the keyboard reaches if there is no page of the run."""
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
