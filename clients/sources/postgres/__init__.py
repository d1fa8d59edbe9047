"""PostgreSQL as a source: tables of one database, by logical decoding with `pgoutput`.

Inside: the connections, the catalog, the slot, the parallel copy of a snapshot, and the decoder of the stream, which
turns messages into columns. Not inside: what becomes of the rows, which `clients/sources` does for every source.
"""
