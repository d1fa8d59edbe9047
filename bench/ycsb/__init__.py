"""The Yahoo! Cloud Serving Benchmark (Cooper et al., SoCC 2010): small reads and writes by many client processes."""
