"""Commands that run until they are stopped, and bring changes from elsewhere: ``nyala mirror``, ``nyala consume`` and
``nyala follow``.

Here are their signals and the lines about their progress. The sources are in `clients/sources`, the work on files in
`clients/jobs/files`.
"""
