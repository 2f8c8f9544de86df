"""forebay.pages: what all HTML of forebay is made of, the console's pages and the load test's reports.

One skeleton, one style sheet, one way to draw a line and one rule of escaping. Whoever makes a page brings its own
templates and hands them plain data. `rendering` needs Jinja2, the rest nothing.
"""
