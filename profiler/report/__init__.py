"""Reports: the model of a report, its terminal, page, charts and files."""

from profiler.plugins import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "build": "build_report section_kinds",
        "charts.style": "draw",
        "files": "document to_json",
        "html.page": "body_of header_html html_page write_html",
        "html.tables": "table_json",
        "html.timeline": "timeline_of",
        "language": "catalogue",
        "terminal": "LINES print_report",
    },
)
