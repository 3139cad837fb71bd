"""What may be asked of a store: one SELECT, or EXPLAIN of one, over its views and nothing else.

DuckDB's own locks leave holes, found by trying (2.0.1). Turning external access off keeps the attached file itself
readable: `read_blob` gets its bytes, and closing it drops DuckDB's lock on it. Table functions write log and profile
files, change the parser, sleep where no interrupt wakes them, run SQL from a string. And a file of a stranger brings
views and macros that can be named as `store.main.x`. So a query is parsed, by DuckDB, and each table function, and
each name with a database before it, has to be one of those that are known to be harmless.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import duckdb

from resumable_nb.errors import QueryRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Parameters = Sequence[object] | Mapping[str, object] | None

_EXPLAIN = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*EXPLAIN\s*(?:ANALYZE\b|\([^)]*\))?", re.IGNORECASE | re.DOTALL)
_OURS = ("state_at", "in_flight", "llm_exchange")
_GENERAL = ("generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest")
_CATALOG: tuple[str, ...] = (
    "columns",
    "constraints",
    "databases",
    "functions",
    "indexes",
    "keywords",
    "memory",
    "schemas",
    "sequences",
)
_CATALOG += ("settings", "tables", "triggers", "types", "views")
_PRAGMAS = ("database_size", "show", "storage_info", "table_info", "version")
_TABLE_FUNCTIONS = frozenset(
    [*_OURS, *_GENERAL, *(f"duckdb_{name}" for name in _CATALOG), *(f"pragma_{name}" for name in _PRAGMAS)]
)
_LIKE_A_FILE = re.compile(r"[./\\:*]")
_QUERIES = ("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE")
_NO_FUNCTIONS = frozenset(("pg_sleep", "sleep_ms", "write_log"))
_SEVERAL = (
    "several in one, as DuckDB makes of PIVOT without IN (name the values: PIVOT steps ON phase IN ('done', 'failed') "
    "USING count(*))"
)
_DATABASES = frozenset(("memory", "system", "temp", "main", "information_schema", "pg_catalog"))


def check(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Exactly one SELECT, or one EXPLAIN of a SELECT, over tables, views and functions that do nothing else.

    Raises:
        QueryRefused: it is something else.
    """
    try:
        statements = con.extract_statements(sql)
        select = sql
        if [statement.type for statement in statements] == [duckdb.StatementType.EXPLAIN]:
            select = _EXPLAIN.sub("", sql, count=1)
            statements = con.extract_statements(select)
    except duckdb.Error as error:
        raise QueryRefused(f"DuckDB does not understand the query: {error}") from error
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        told = ", ".join(_SEVERAL if kind.name == "MULTI" else kind.name for kind in kinds) or "nothing"
        raise QueryRefused(
            f"Only one SELECT, or EXPLAIN of one, can be asked; this is {told}. The journal is never changed by SQL"
        )
    for node in _nodes(_parsed(con, select)):
        _check_node(node)


def with_thread(sql: str, params: Parameters, thread: Callable[[], str]) -> Parameters:
    """The values of a query, with the thread for `$thread` where it names that and nobody gave a value for it.

    DuckDB takes no value that a query does not name, and it alone knows what is a name: `'$thread'` is a text.
    """
    if "$" not in sql or (params and not isinstance(params, dict)):
        return params  # DuckDB takes no values by place and by name at once
    with duckdb.connect() as con:
        try:
            named = {name.lower() for statement in con.extract_statements(sql) for name in statement.named_parameters}
        except duckdb.Error:  # said when it is asked
            return params
    given: dict[str, object] = params if isinstance(params, dict) else {}
    if "thread" not in named or any(name.lower() == "thread" for name in given):
        return params
    return {**given, "thread": thread()}


def _parsed(con: duckdb.DuckDBPyConnection, select: str) -> object:
    (text,) = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [select]).fetchall()[0]
    try:
        parsed = json.loads(text)
    except RecursionError:
        raise QueryRefused("The query is nested too deeply. Ask in several steps, with WITH") from None
    if parsed["error"]:
        raise QueryRefused(f"This form of SELECT cannot be asked: {parsed['error_message']}")
    return parsed["statements"]


def _nodes(parsed: object) -> Iterator[dict[str, Any]]:
    todo = [parsed]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield node
            todo += node.values()
        elif isinstance(node, list):
            todo += node


def _check_node(node: dict[str, Any]) -> None:
    match node.get("type"):
        case "TABLE_FUNCTION":
            name = node["function"].get("function_name", "")
            if name.lower() not in _TABLE_FUNCTIONS:
                raise QueryRefused(
                    f"The function {name}() cannot be asked: a query reads the views of the store, and can neither "
                    "reach files or the network nor change anything. Read files with pandas, and join there"
                )
        case "FUNCTION" if node.get("function_name", "").lower() in _NO_FUNCTIONS:
            raise QueryRefused(
                f"The function {node['function_name']}() cannot be asked: it is not allowed, for a query only reads, "
                "and neither waits nor writes a log"
            )
        case "BASE_TABLE" if _LIKE_A_FILE.search(node.get("table_name", "")):
            raise QueryRefused(
                f"{node['table_name']!r} looks like a file, and a query reads the views of the store alone. Read files "
                "with pandas, and join there"
            )
    if "materialized" in node and (node.get("query_node") or {}).get("type") not in _QUERIES:
        raise QueryRefused("Only SELECT can stand in a WITH. The journal is never changed by SQL")
    path = (node.get("qualified_name") or {}).get("path", ())
    if len(path) > 1 and node.get("type") in ("BASE_TABLE", "FUNCTION", "SHOW_REF"):
        _check_database(node["type"], path)


def _check_database(kind: str, path: list[str]) -> None:
    """A function may also follow a value: `quote.lower()`, which DuckDB tells as a path as well."""
    first = path[0].lower()
    if first == "store" or (kind != "FUNCTION" and first not in _DATABASES):
        raise QueryRefused(
            f"{'.'.join(path)} cannot be asked: views and functions that a file brings along are never used. Leave "
            f"away what stands before {path[-1]}"
        )
