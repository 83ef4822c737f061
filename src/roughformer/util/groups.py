"""Groups of options: plain data that never changes and knows which of its values were given."""

import difflib
import inspect
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from roughformer.errors import InputError

Model = TypeVar("Model", bound=BaseModel)


def one_line(error: ValidationError) -> InputError:
    """What pydantic found wrong with an option, in one sentence."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function"))
    message = first["msg"].removeprefix("Value error, ")
    described = isinstance(first.get("input"), dict) or " got " in message
    given = "" if described else f", got {first.get('input')!r}"
    return InputError(f"{'' if message.startswith(name) else name + ': '}{message}{given}")


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed, for the values of options."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise InputError(f"{dict(self)} is the value of an option and cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        """Equal dicts have equal hashes."""
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        """Pickle it as what it is made from: unpickling must not fill it."""
        return type(self), (dict(self),)


class Group(BaseModel):
    """Options that belong together; they cannot be changed, and can be keys of a dict.

    A group remembers which options were given (``given``); an estimator is free to choose the
    others, so groups are equal only if the same options were given. ``"auto"`` is the same as not
    giving an option. Unknown names and wrong values raise ``InputError``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Fields that are not options of an estimator: what sets them instead.
    set_by: ClassVar[dict[str, str]] = {}

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, /, **options):
            """Check the options that are given."""
            for name in options:
                if name not in type(self).model_fields:
                    raise InputError(_unknown(type(self), name))
            try:
                super().__init__(**{k: v for k, v in options.items() if not _is_auto(v)})
            except ValidationError as error:
                raise one_line(error) from None

        def __setattr__(self, name, value):
            """Refuse: a group may be shared by many estimators."""
            raise InputError(
                f"{type(self).__name__} is frozen, {name} cannot be set; make another one, or use "
                "set_params of the estimator"
            )

        def __eq__(self, other):
            """Whether the same options were given the same values."""
            if not isinstance(other, Group):
                return NotImplemented
            return super().__eq__(other) and self.model_fields_set == other.model_fields_set

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Show only the options in the signature, and describe them in the docstring."""
        super().__pydantic_init_subclass__(**kwargs)
        describe(cls)

    @classmethod
    def options(cls) -> list[str]:
        """The names that an estimator takes in this group."""
        return [name for name in cls.model_fields if name not in cls.set_by]

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given, by name."""
        given = self.model_fields_set
        return {name: getattr(self, name) for name in type(self).model_fields if name in given}

    def __repr_args__(self) -> Any:
        """Show what was given."""
        yield from self.given.items()

    def __str__(self) -> str:
        """As ``repr``."""
        return repr(self)

    def __deepcopy__(self, memo: Any = None) -> Self:
        """Nothing in a group changes, so a deep copy is the group itself, callbacks included."""
        return self


def describe(model: type[Model]) -> type[Model]:
    """Show only the options in the signature, and make numpydoc's section of them from their
    descriptions, unless the docstring has one.
    """
    names = model.options() if issubclass(model, Group) else list(model.model_fields)
    parameters = inspect.signature(model).parameters.values()
    model.__signature__ = inspect.Signature([x for x in parameters if x.name in names])
    if "Parameters\n" in (model.__doc__ or ""):
        return model
    lines = [inspect.cleandoc(model.__doc__ or ""), "", "Parameters", "----------"]
    for name in names:
        field = model.model_fields[name]
        default = "" if field.is_required() else f", default {field.default!r}"
        lines.append(f"{name} : {_kind(field.annotation)}{default}")
        lines += wrap(field.description or "", 96, initial_indent="    ", subsequent_indent="    ")
    model.__doc__ = "\n".join(lines)
    return model


def _kind(annotation: Any) -> str:
    """How numpydoc writes a type."""
    if get_origin(annotation) is Literal:
        return f"{{{', '.join(map(repr, get_args(annotation)))}}}"
    plain = isinstance(annotation, type) and get_origin(annotation) is None
    return annotation.__name__ if plain else str(annotation).replace("typing.", "")


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _unknown(group: type[Group], name: str) -> str:
    near = difflib.get_close_matches(str(name), group.options(), n=1)
    known = ", ".join(group.options())
    hint = f"did you mean {near[0]!r}? It has {known}" if near else f"it has {known}"
    return f"{group.__name__} has no option {name!r}; {hint}"
