"""Pages for people: an offline one for each configuration, and those kept in the repository."""

from leakbound.figures.report.page import Report, ReportFigure, page

__all__ = ["Report", "ReportFigure", "page"]
