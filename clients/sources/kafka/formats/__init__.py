"""The formats of messages: JSON, Arrow, Avro, and Debezium's envelope in JSON or Avro, each read a batch at a time.

Inside: bytes of messages become rows, or a reason to reject them. Not inside: Kafka, and what the store does with rows.
"""
