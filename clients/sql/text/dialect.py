"""PostgreSQL's grammar with the clauses that tables of Nyala have beyond it.

    CREATE TABLE t (...) PARTITION BY HASH (a, b) INTO 4 [SEED 7], RANGE (d) ([range | SPLIT AT (v) [, ...]])
    range := [PARTITION] [VALUES] FROM (v | MINVALUE) [EXCLUSIVE] TO (v | MAXVALUE) [INCLUSIVE] [HASH (a) INTO 4 ...]
    ALTER TABLE t ADD range | DROP range | SPLIT PARTITION AT (v)
    ALTER TABLE t ALTER COLUMN a SET (encoding = 'plain') | RESET (encoding) | COMMENT 'text'
    ALTER TABLE t SET (max_rows = 5) | RESET (max_rows)
    COMMENT ON TABLE t | COLUMN t.a IS 'text' | NULL
    START TRANSACTION

In ALTER TABLE a range begins with PARTITION. These are hooks of sqlglot's parser: it reads all text.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.expressions.core import Expression
from sqlglot.parsers import postgres
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from ....schemas.errors import InvalidArgumentError

if not (postgres.__file__ or "").endswith(".py"):  # classes in Python cannot be below compiled ones
    raise InvalidArgumentError(
        "SQL needs sqlglot without its compiled part, because Nyala adds clauses to the grammar: pip uninstall sqlglotc"
    )


class PartitionLevels(exp.Property):
    """The clause PARTITION BY: its ``expressions`` are hash levels and at most one range level."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class HashBuckets(Expression):
    """The clause of SQL: HASH (columns) INTO buckets [SEED seed]."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True, "buckets": True, "seed": False}


class RangeParts(Expression):
    """The clause RANGE (columns) (parts): its ``parts`` are ranges and splits."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True, "parts": False}


class RangePart(Expression):
    """One range of PARTITION BY: the values of its ends, whether they belong to it, and its own hash levels."""

    arg_types: ClassVar[dict[str, bool]] = {
        "lower": True,
        "upper": True,
        "exclusive": False,
        "inclusive": False,
        "levels": False,
    }


class SplitAt(Expression):
    """The clause SPLIT AT (values) of PARTITION BY."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class AddRange(Expression):
    """The step of ALTER TABLE that adds the range ``this``."""


class DropRange(Expression):
    """The step of ALTER TABLE that drops the range ``this``."""


class ColumnSettings(Expression):
    """The step of ALTER TABLE that sets options of the column ``this``, or restores them: NULL."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True}


class NyalaParser(PostgresParser):
    """PostgreSQL's parser with the hooks for the clauses that tables of Nyala have beside."""

    PROPERTY_PARSERS: ClassVar[dict[str, Any]] = {
        **{word: parse for word, parse in PostgresParser.PROPERTY_PARSERS.items() if word != "TTL"},  # an option here
        "PARTITION BY": lambda self: self._partition_by(),
    }
    ALTER_PARSERS: ClassVar[dict[str, Any]] = {
        **PostgresParser.ALTER_PARSERS,
        "RESET": lambda self: self.expression(exp.AlterSet(expressions=self._reset())),
        "SPLIT": lambda self: self._split(),
    }
    CONSTRAINT_PARSERS: ClassVar[dict[str, Any]] = {
        **PostgresParser.CONSTRAINT_PARSERS,
        "WITH": lambda self: self.expression(exp.Properties(expressions=self._parse_wrapped_csv(self._setting))),
    }
    ALTER_RENAME_REQUIRES_COLUMN: ClassVar[bool] = False
    _is_comment = False

    def _partition_by(self) -> exp.Expr:
        return self.expression(PartitionLevels(expressions=self._parse_csv(self._level)))

    def _level(self) -> exp.Expr | None:
        if self._match_text_seq("RANGE"):
            columns = self._parse_wrapped_id_vars()
            parts = self._parse_wrapped_csv(self._part) if self._match(TokenType.L_PAREN, advance=False) else []
            return self.expression(RangeParts(expressions=columns, parts=parts))
        return self._hash_level()

    def _hash_level(self) -> exp.Expr | None:
        if not self._match_text_seq("HASH"):
            self.raise_error("Expected HASH (columns) INTO buckets, or RANGE (columns) (ranges)")
            return None
        columns = self._parse_wrapped_id_vars()
        if not self._match_text_seq("INTO"):
            self.raise_error("Expected INTO and the number of buckets")
        buckets = self._parse_number()
        seed = self._parse_number() if self._match_text_seq("SEED") else None
        return self.expression(HashBuckets(expressions=columns, buckets=buckets, seed=seed))

    def _part(self) -> exp.Expr | None:
        if self._match_text_seq("SPLIT"):
            self._match_text_seq("AT")
            return self.expression(SplitAt(expressions=self._ends()))
        self._match(TokenType.PARTITION)
        return self._range()

    def _range(self) -> exp.Expr | None:
        self._match(TokenType.VALUES)
        if not self._match(TokenType.FROM):
            self.raise_error("Expected FROM (values) TO (values)")
        lower = self._ends()
        exclusive = self._match_text_seq("EXCLUSIVE")
        self._match_text_seq("INCLUSIVE")
        if not self._match_text_seq("TO"):
            self.raise_error("Expected TO (values)")
        upper = self._ends()
        inclusive = self._match_text_seq("INCLUSIVE")
        self._match_text_seq("EXCLUSIVE")
        levels = self._hash_levels()
        return self.expression(
            RangePart(lower=lower, upper=upper, exclusive=exclusive, inclusive=inclusive, levels=levels)
        )

    def _hash_levels(self) -> list[exp.Expr] | None:
        """Read the hash levels of a range: a comma may also begin the next range."""
        levels: list[exp.Expr] = []
        index = self._index
        while self._match_text_seq("HASH", advance=False) and (level := self._hash_level()):
            levels.append(level)
            index = self._index
            if not self._match(TokenType.COMMA):
                break
        self._retreat(index)
        return levels or None

    def _setting(self) -> exp.Expr | None:
        name = self._parse_var(any_token=True)
        if not self._match(TokenType.EQ):
            self.raise_error("Expected = and a value")
        return self.expression(exp.Property(this=name, value=self._parse_disjunction()))

    def _ends(self) -> list[exp.Expr]:
        return self._parse_wrapped_csv(self._parse_disjunction)

    def _reset(self) -> list[exp.Expr]:
        return [exp.EQ(this=name, expression=exp.null()) for name in self._parse_wrapped_id_vars()]

    def _split(self) -> exp.Expr | None:
        self._match(TokenType.PARTITION)
        self._match_text_seq("AT")
        return self.expression(SplitAt(expressions=self._ends()))

    def _parse_alter_table_add(self) -> list[exp.Expr]:
        if self._match_partition():
            return [self.expression(AddRange(this=self._range()))]
        return super()._parse_alter_table_add()

    def _parse_alter_table_drop(self) -> list[exp.Expr]:
        if self._match_partition():
            return [self.expression(DropRange(this=self._range()))]
        return super()._parse_alter_table_drop()

    def _match_partition(self) -> bool:
        index = self._index
        self._match_text_seq("RANGE")
        if self._match(TokenType.PARTITION) and not self._match(TokenType.L_PAREN, advance=False):
            return True
        self._retreat(index)
        return False

    def _parse_alter_table_alter(self) -> exp.Expr | None:
        index = self._index
        self._match(TokenType.COLUMN)
        column = self._parse_field(any_token=True)
        if self._match_text_seq("RESET"):
            return self.expression(ColumnSettings(this=column, expressions=self._reset()))
        if self._match(TokenType.SET) and self._match(TokenType.L_PAREN, advance=False):
            settings = self._parse_wrapped_csv(self._parse_assignment)
            return self.expression(ColumnSettings(this=column, expressions=settings))
        self._retreat(index)
        return super()._parse_alter_table_alter()

    def _parse_comment(self, allow_exists: bool = True) -> exp.Expr:
        self._is_comment = True
        try:
            return super()._parse_comment(allow_exists)
        finally:
            self._is_comment = False

    def _parse_string(self) -> exp.Expr | None:
        answer = super()._parse_string()
        if answer is None and self._is_comment and self._match(TokenType.NULL):
            return exp.Literal.string("")
        return answer

    def _warn_unsupported(self) -> None:
        """Say nothing: whoever runs the statement refuses it."""


class NyalaSql(Postgres):
    """The dialect of SQL statements: ``sqlglot.parse(text, dialect=NyalaSql)``."""

    Parser = NyalaParser

    class Tokenizer(Postgres.Tokenizer):
        """PostgreSQL's words, and START TRANSACTION for BEGIN."""

        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **Postgres.Tokenizer.KEYWORDS,
            "START TRANSACTION": TokenType.BEGIN,
        }
