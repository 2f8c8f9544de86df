"""Conditions on columns of facts that Spark pushes down: unwanted rows are dropped where they are read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import datasource
from pyspark.sql.datasource import Filter

_COMPARISONS: Final = {
    datasource.EqualTo: "equal",
    datasource.GreaterThan: "greater",
    datasource.GreaterThanOrEqual: "greater_equal",
    datasource.LessThan: "less",
    datasource.LessThanOrEqual: "less_equal",
}
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "equal": operator.eq,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "less": operator.lt,
    "less_equal": operator.le,
}
_TYPES: Final = {"string": str, "int": int, "long": int}


class FilterCondition(NamedTuple):
    """A condition on one column. `operation`: a name in pyarrow.compute, "in", "is_valid" or "is_null"."""

    column: str
    operation: str
    value: Any = None


def condition_of(one: Filter, known: Mapping[str, str]) -> FilterCondition | None:
    """Return the condition of a filter. None if Spark must apply it itself."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in known:
        return None
    column = attribute[0]
    if isinstance(one, datasource.IsNotNull):
        return FilterCondition(column, "is_valid")
    if isinstance(one, datasource.IsNull):
        return FilterCondition(column, "is_null")
    kind = _TYPES.get(known[column])
    if isinstance(one, datasource.In):
        values = tuple(one.value)
        return FilterCondition(column, "in", values) if all(_is(kind, value) for value in values) else None
    operation = _COMPARISONS.get(type(one))
    value = getattr(one, "value", None)
    return FilterCondition(column, operation, value) if operation is not None and _is(kind, value) else None


def _is(kind: type | None, value: object) -> bool:
    return kind is not None and isinstance(value, kind) and not isinstance(value, bool)


def applied(batch: Any, conditions: Sequence[FilterCondition], names: tuple[str, ...]) -> Any:
    """Return the rows of a batch that meet all conditions, with the columns of those names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    mask: Any = None
    for column, operation, value in conditions:
        values = batch.column(column)
        if operation == "in":
            found = pc.is_in(values, value_set=pa.array(value, values.type))
        elif value is None:
            found = getattr(pc, operation)(values)
        else:
            found = getattr(pc, operation)(values, pa.scalar(value, values.type))
        mask = found if mask is None else pc.and_(mask, found)
    return batch.filter(mask).select(list(names))


def prunes(conditions: Sequence[FilterCondition], broker: str, data_log: int) -> bool:
    """Return whether no row of that data log can meet the conditions."""
    return not all(
        _meets(broker if condition.column == "broker" else data_log, condition)
        for condition in conditions
        if condition.column in ("broker", "data_log")
    )


def _meets(value: str | int, condition: FilterCondition) -> bool:
    operation, asked = condition.operation, condition.value
    if operation == "in":
        return value in asked
    if operation in ("is_null", "is_valid"):
        return operation == "is_valid"
    return bool(_OPERATORS[operation](value, asked))
