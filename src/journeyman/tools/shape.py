"""Estimates the cost of a check by a pydantic core schema: how often it looks at the values that it is given.

A union looks at a value once for each member. Where several members lead back to the union, that multiplies with every
level; everywhere else it is a number that is known from the schema alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, cast

from pydantic_core import CoreSchema, from_json

from journeyman.definition.narrowing import is_dict, is_list
from journeyman.tools.collisions import each_schema

_Json = dict[str, Any]
_Path = tuple[str | int, ...]

MAX_STEPS: Final = 30_000
"""How many objects and lists are looked at, by each type that looks at them, to count a cost: some 20 ms."""
_FIELDS: Final = frozenset({"dataclass-args", "model-fields", "named-tuple", "typed-dict"})
HOLDERS: Final = (dict, list, tuple, set, frozenset)
_SAME_OF_OBJECTS: Final = frozenset(
    {
        *("bool", "dataclass", "dataclass-args", "dataclass-field", "default", "definition-ref", "definitions"),
        *("float", "int", "list", "literal", "model", "model-field", "model-fields", "none", "nullable", "str"),
        *("typed-dict", "typed-dict-field", "union"),
    }
)
"""Schemas that take the same of JSON and of the objects that are made of it. A dict does not: JSON may name a key
twice, and both values are checked."""
_OPTIONS: Final = frozenset({"coerce_numbers_to_str", "extras_schema"})
"""Options with which that is not so."""
_CALLS: Final = frozenset({"call", "chain", "generator", "arguments"})
"""Schemas that call the program with what was made."""
_LOOKING: Final = ("post_init", "custom_init", "default_factory_takes_data")
"""Options with which it is called so."""
_SHORT: Final = 16
_ITEMS: Final = frozenset({"deque", "frozenset", "generator", "list", "set"})


class _Node:
    """A schema, as far as it matters to the cost. It is filled after it is made, since schemas refer to themselves."""

    __slots__ = (
        *("cost", "every", "extra", "fields", "first", "is_json", "is_leaf", "is_shared", "items", "keys", "named"),
        *("one_of", "tag", "tagged"),
    )

    def __init__(self) -> None:
        self.every: list[_Node] = []
        """All of these look at the same value: the members of a union, the steps of a chain."""
        self.one_of: list[_Node] = []
        """One of these looks at the same value."""
        self.tag: list[_Path] = []
        self.tagged: dict[object, _Node] = {}
        """Which of `one_of` it is, by the value at one of the paths `tag`."""
        self.fields: list[tuple[list[_Path], _Node]] = []
        """What looks at the value at one of the paths."""
        self.extra: _Node | None = None
        """What looks at all values of an object."""
        self.keys: _Node | None = None
        self.first: list[_Node] = []
        self.items: _Node | None = None
        """What looks at each value of a list, beyond the first ones."""
        self.is_json = False
        """True when the value is a text that holds JSON, and the rest is about what it holds."""

        self.named: list[tuple[str, _Node]] = []
        """Those of `fields` that have one path, of one name."""
        self.cost = 1
        """How often a value that holds no others is looked at."""
        self.is_leaf = False
        """True when nothing else looks at the value, or at one in it."""
        self.is_shared = False
        """True when several others look at the same value."""

    def settle(self) -> None:
        """Note what is asked for at each value, once all is filled."""
        others = (self.every, self.one_of, self.fields, self.first, self.items, self.extra, self.keys)
        self.is_leaf = not any(others)
        self.cost = 1 + len(self.every)
        self.is_shared = len(self.every) + len(self.one_of) > 1
        fields, self.fields = self.fields, []
        for paths, each in fields:
            if len(paths) == len(paths[0]) == 1:
                self.named.append((cast("str", paths[0][0]), each))
            else:
                self.fields.append((paths, each))

    def inside(self) -> Iterator[_Node]:
        """Give the nodes that look at values inside of the value."""
        yield from (node for _, node in (*self.fields, *self.named))
        yield from self.first
        yield from (node for node in (self.extra, self.keys, self.items) if node is not None)


class Shape:
    """The cost of the checks by one core schema."""

    def __init__(self, schema: CoreSchema) -> None:
        self.is_strict = False
        """True when a part takes only values of its own type."""
        listed = [each.get("expected") or each.get("members") for each in each_schema(schema)]
        listed += [each["choices"] for each in each_schema(schema) if each.get("type") == "tagged-union"]
        texts = [map(repr, names) for names in listed if is_list(names) or is_dict(names)]
        self.n_chars_of_choices = max([sum([len(text) + 2 for text in each]) for each in texts], default=0)
        """How long an error may be that names all members of an enum, or all tags of a union."""
        self._definitions: dict[str, _Json] = {}
        self._known: dict[str, _Node] = {}
        self._root = self._node(cast("_Json", schema))
        kinds = {kind for each in each_schema(schema) if isinstance(kind := each.get("type"), str)}
        has_options = any([not _OPTIONS.isdisjoint(each) for each in each_schema(schema)])
        self.may_be_objects = kinds <= _SAME_OF_OBJECTS and not (self.is_strict or has_options)
        """True when a text becomes the same value if it is made into Python's objects first."""
        looks_back = any([any(map(each.get, _LOOKING)) or _counts_different(each) for each in each_schema(schema)])
        calls = any([each.startswith("function-") or each in _CALLS for each in kinds])
        self.may_be_dropped = not (looks_back or calls)
        """True when no part that was made is looked at again."""
        every = {self._root, *_reachable_nodes(self._root)}
        for node in every:
            node.settle()
        # Where two members of a union lead back to it, every level is looked at twice as often as the one above.
        unions = [node for node in every if len(node.every) > 1]
        self.n_members = max([len(node.every) for node in unions if node in _reachable_nodes(node)], default=0)
        """The most members of a union whose members may hold it again."""
        multiplies = any(sum([node in _reachable_nodes(member) for member in node.every]) > 1 for node in unions)
        self.n_visits = float("inf") if multiplies else self._visits(self._root, {})
        """How often each single value is looked at, at most; infinity if that grows with its depth."""
        self.n_fields = 1 + max([len(node.fields) + len(node.named) for node in every])
        """The most errors that one object may have, beside those of what is in it."""

    def _node(self, schema: _Json) -> _Node:
        node = _Node()
        return self._fill(node, schema) or node

    def _fill(self, node: _Node, schema: _Json) -> _Node | None:
        """Fill a node, or return the one that stands for the schema."""
        self.is_strict |= bool(schema.get("strict") or schema.get("config", {}).get("strict"))
        match schema["type"]:
            case "definitions":
                self._definitions |= {each["ref"]: each for each in schema["definitions"]}
                return self._node(schema["schema"])
            case "definition-ref":
                return self._referenced_node(schema["schema_ref"])
            case "union":
                choices = cast("list[_Json | tuple[_Json, str]]", schema["choices"])
                node.every = [self._node(each[0] if isinstance(each, tuple) else each) for each in choices]
            case "chain":
                node.every = [self._node(each) for each in schema["steps"]]
            case "tagged-union":
                node.tagged = {tag: self._node(each) for tag, each in schema["choices"].items()}
                node.one_of, node.tag = [*node.tagged.values()], _paths(schema["discriminator"])
            case "lax-or-strict" | "json-or-python" as kind:
                node.one_of = [self._node(schema[f"{name}_schema"]) for name in kind.split("-or-")]
            case "json" if "schema" in schema:
                node.is_json, node.one_of = True, [self._node(schema["schema"])]
            case "call" | "function-after" | "function-before" | "function-wrap" | "model" | "dataclass":
                return self._node(schema["arguments_schema" if schema["type"] == "call" else "schema"])
            case _:
                return self._fill_container(node, schema)
        return None

    def _fill_container(self, node: _Node, schema: _Json) -> _Node | None:
        match schema["type"]:
            case kind if kind in _FIELDS:
                given: Any = schema["fields"]
                named: list[tuple[str, _Json]] = (
                    [*given.items()] if isinstance(given, dict) else [(each["name"], each) for each in given]
                )
                for name, each in named:
                    paths = [(name,), *_paths(each.get("validation_alias", []))]
                    node.fields.append((paths, self._node(each["schema"])))
                node.extra = self._node(schema["extras_schema"]) if "extras_schema" in schema else None
                node.first = [inside for _, inside in node.fields] if kind == "named-tuple" else []
            case "arguments":
                for each in schema["arguments_schema"]:
                    paths = [(each["name"],), *_paths(each.get("alias", []))]
                    node.fields.append((paths, self._node(each["schema"])))
                node.first = [inside for _, inside in node.fields]
            case kind if kind in _ITEMS:
                node.items = self._node(schema["items_schema"]) if "items_schema" in schema else None
            case "tuple":
                variadic, items = schema.get("variadic_item_index"), list(map(self._node, schema["items_schema"]))
                node.first = items if variadic is None else items[:variadic]
                node.items = None if variadic is None else items[variadic]
                node.every = []
            case "dict" | "frozendict" | "ordered-dict" | "counter":
                node.extra = self._node(schema["values_schema"]) if "values_schema" in schema else None
                node.keys = self._node(schema["keys_schema"]) if "keys_schema" in schema else None
            case _ if isinstance(schema.get("schema"), dict):  # it only adds something to another
                return self._node(schema["schema"])
            case _:
                pass
        return None

    def _referenced_node(self, reference: str) -> _Node:
        if reference not in self._known:
            node = self._known[reference] = _Node()
            if (other := self._fill(node, self._definitions[reference])) is not None:
                for name in _Node.__slots__:
                    setattr(node, name, getattr(other, name))
        return self._known[reference]

    @cached_property
    def branches(self) -> bool:
        """True when a value of a type may hold several of the same type in fields of its own, as a binary tree does."""
        nodes = _reachable_nodes(self._root)
        return any(
            sum([node in _reachable_nodes(each) for _, each in (*node.fields, *node.named)]) > 1 for node in nodes
        )

    def _visits(self, node: _Node, known: dict[_Node, float]) -> float:
        if node in known:
            return known[node]
        known[node] = 1  # until it is known: it may refer to itself
        inside = max([1.0, *[self._visits(each, known) for each in node.inside()]])
        every = sum([self._visits(each, known) for each in node.every])
        known[node] = found = max([inside, every, *[self._visits(each, known) for each in node.one_of]])
        return found

    def n_looks_at_most(self, n_values: Sequence[int], most: float) -> float:
        """Return how often a check looks, at most, at values of which so many stand at each level; something above
        `most` if it is more."""
        n_looks, looking = 0.0, Counter({self._root: 1})
        for n in n_values:
            here = Counter[_Node]()
            for node, times in looking.items():
                for each, more in self._at_same_value(node).items():
                    here[each] += times * more
            n_looks += n * here.total()
            if n_looks > most:
                break
            looking = Counter[_Node]()
            for node, times in here.items():
                for each in node.inside():
                    looking[each] += times
        return n_looks

    def _at_same_value(self, node: _Node) -> Counter[_Node]:
        """Return the nodes that look at a value which one looks at, and how often each does."""
        found = Counter({node: 1})
        for each in (*node.every, *node.one_of):
            found += self._at_same_value(each)
        return found

    def n_looks(self, value: object, most: int, *, max_steps: int) -> float:
        """Count how often a check looks at a value and what is in it, each pair of a value and a type once; infinity if
        it is more than `most`, or too much to count."""
        try:
            return _Count(most, max_steps).of(self._root, value)
        except (RecursionError, TooManyToCount):
            return float("inf")


def _counts_different(schema: _Json) -> bool:
    """Tell whether a schema wants a number of values, or of keys, that differ."""
    return "min_length" in schema and schema["type"] not in ("bytes", "deque", "list", "str", "tuple")


class TooManyToCount(Exception):
    """There is more to count than it is worth."""


class _Count:
    def __init__(self, most: int, max_steps: int) -> None:
        self._most, self._max_steps = most, max_steps
        self._known: dict[tuple[_Node, int], int] = {}
        self._n_steps = 0
        self._large: dict[int, list[object]] = {}
        """The objects and lists in a list, by its id: each type that looks at it asks for them."""
        self._parsed: list[object] = []  # so that no other value gets the id of one

    def of(self, node: _Node, value: object) -> int:
        if node.is_json:
            value = self._parse_json(value)
        if node.is_leaf or not isinstance(value, HOLDERS):
            return node.cost
        if not node.is_shared:
            return self._inside(node, cast("object", value))
        pair = (node, id(cast("object", value)))
        if pair in self._known:
            return self._known[pair]
        self._known[pair] = 1  # until it is known: it may hold itself
        n_looks = self._inside(node, cast("object", value))
        self._known[pair] = n_looks
        return n_looks

    def _inside(self, node: _Node, value: object) -> int:
        self._n_steps += 1
        if self._n_steps > self._max_steps:
            raise TooManyToCount
        n_looks = 1
        for each in node.every:
            n_looks += self.of(each, value)
            if n_looks > self._most:
                raise TooManyToCount
        if node.one_of:
            n_looks += self._of_one(node, value)
        if is_dict(value):
            n_looks += self._in_object(node, value)
        else:
            items = cast("Sequence[object]", value)
            for each, item in zip(node.first, items, strict=False):
                n_looks += self.of(each, item)
            n_looks += 0 if node.items is None else self._of_all(node.items, items)
        if n_looks > self._most:
            raise TooManyToCount
        return n_looks

    def _of_one(self, node: _Node, value: object) -> int:
        tags = [tag for path in node.tag if (tag := _at(value, path)) is not None]
        if node.tag:  # without a tag, nothing more is looked at; of a part of a text, it may stand behind
            chosen = node.tagged.get(tags[0]) if tags and isinstance(tags[0], str | int) else None
            return 1 if chosen is None else self.of(chosen, value)
        most = 0
        for each in node.one_of:
            most = max(most, self.of(each, value))
        return most

    def _in_object(self, node: _Node, value: dict[object, object]) -> int:
        n_looks = len(value)
        for name, each in node.named:
            if name in value:
                n_looks += self.of(each, value[name])
        for paths, each in node.fields:
            for path in paths:
                found = _at(value, path)
                if found is not None:
                    n_looks += self.of(each, found)
        if node.extra is not None:
            n_looks += self._of_all(node.extra, value)
        return n_looks

    def _of_all(self, node: _Node, holder: Collection[object]) -> int:
        """Count how often the values of a list, or of an object, are looked at."""
        values: Collection[object] = holder.values() if is_dict(holder) else holder
        if node.is_json:
            return sum([self.of(node, each) for each in values])
        large = self._large.get(id(holder))
        if large is None:
            is_short = len(values) < _SHORT  # not worth a look at its types
            has_large = is_short or any([issubclass(kind, HOLDERS) for kind in set(map(type, values))])
            found: list[object] = [each for each in values if has_large and isinstance(each, HOLDERS)]
            large = self._large[id(holder)] = found
        n_looks = (len(values) - len(large)) * node.cost
        for each in large:
            n_looks += self.of(node, each)
        return n_looks

    def _parse_json(self, value: object) -> object:
        if not isinstance(value, str | bytes):
            return value
        try:
            self._parsed.append(from_json(value))
        except (ValueError, TypeError):
            return value
        return self._parsed[-1]


def _at(value: object, path: _Path) -> object:
    for part in path:
        try:
            value = cast("Any", value)[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _paths(given: object) -> list[_Path]:
    """Return the paths of an alias, which is a name, a path, or a list of paths. A function has none."""
    if isinstance(given, str):
        return [(given,)]
    listed: list[Any] = given if is_list(given) else []
    return [tuple(listed)] if listed and isinstance(listed[0], str) else [tuple(path) for path in listed]


def _reachable_nodes(node: _Node) -> set[_Node]:
    """Return every node that a check by one may come to, itself only if it comes back."""
    reached = set[_Node]()
    waiting = [node]
    while waiting:
        found = waiting.pop()
        for each in (*found.every, *found.one_of, *found.inside()):
            if each not in reached:
                reached.add(each)
                waiting.append(each)
    return reached
