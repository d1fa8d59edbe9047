"""Kafka as a source: topics are applied to tables, the messages of each partition in order and exactly once.

Inside: the consumer and its group, the positions of partitions, the rejected messages, and what the messages of a batch
make of a table; `formats` reads the messages. Not inside: copies and transactions, which `clients/sources` has for
databases.
"""
