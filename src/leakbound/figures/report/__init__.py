"""What people read in the end: one offline page for each configuration, and the pages kept in the repository."""

from leakbound.figures.report.page import Report, ReportFigure, page

__all__ = ["Report", "ReportFigure", "page"]
