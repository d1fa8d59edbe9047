"""The pages of the console, as HTML, and their charts.

Not inside: metrics for machines (`http/exposition`). `serve` puts them on the port.
"""
