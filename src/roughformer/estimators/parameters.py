"""Parameters of an estimator: a few flat ones, and groups that hold the others."""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from sklearn.base import BaseEstimator

from roughformer.errors import InputError
from roughformer.tokens import TokenConfig
from roughformer.util.groups import Group

__all__ = ["GroupedParameters"]

# Options whose value is chosen from the training series unless it is given.
_AUTO = {
    "tokens": ("windows", "depth", "basepoint", "clock", "context", "observations", "spectrum"),
    "model": ("wide", "scaling"),
}
_RENAMED = {"members": "n_estimators"}


class GroupedParameters(BaseEstimator):  # type: ignore[misc]
    """An estimator whose parameters are in ``groups``, with ``shortcuts`` to those used most.

    ``get_params`` and ``set_params`` know the options of a group as ``group__option``.
    """

    groups: ClassVar[dict[str, type[Group]]]
    shortcuts: ClassVar[dict[str, str]]  # flat parameter -> the group that has it as well

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Say where an option is that is in a group and not among the parameters."""
        cls._check_flat(params)
        made: Self = super().__new__(cls)
        return made

    @classmethod
    def _check_flat(cls, params: Iterable[str]) -> None:
        for name in [name for name in params if name not in inspect.signature(cls).parameters]:
            option = _RENAMED.get(name, name)
            homes = [home for home, group in cls.groups.items() if option in group.options()]
            if homes:
                places = " or ".join(f"{h}={cls.groups[h].__name__}({option}=...)" for h in homes)
                grids = " or ".join(f"{home}__{option}" for home in homes)
                raise InputError(
                    f"{name!r} is an option of a group: give {places}, or set {grids} in "
                    "set_params and grids"
                )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name.

        Parameters
        ----------
        deep : bool, default True
            Also the options of the groups, as ``group__option``.

        Returns
        -------
        dict
            Parameter -> value.
        """
        found: dict[str, Any] = super().get_params(deep=False)
        for name, group in self.groups.items() if deep else ():
            if isinstance(found[name], group | dict | None):
                given = self._given(name)
                for option in group.options():
                    if option in given or option not in self.shortcuts:
                        value = given.get(option, self._usual(name, option))
                        found[f"{name}__{option}"] = value
        return found

    def set_params(self, **params: Any) -> Self:
        """Change parameters: all of those given, or none if one is refused.

        Parameters
        ----------
        **params
            Parameters by name; ``group__option`` changes one option of a group.

        Returns
        -------
        self
        """
        options: dict[str, dict[str, Any]] = {}
        for name in [*params]:
            group, nested, option = name.partition("__")
            if nested and group in self.groups:
                options.setdefault(group, {})[option] = params.pop(name)
        self._check_flat(params)
        before = vars(self).copy()
        try:
            super().set_params(**params)
            for name, changes in options.items():
                setattr(self, name, self.groups[name](**(self._given(name) | changes)))
        except ValueError:
            self.__dict__ = before
            raise
        return self

    @classmethod
    def settings(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Bring options under the one name that each has.

        Parameters
        ----------
        options : mapping from str
            ``clock`` and ``tokens.clock`` become ``tokens__clock``, ``tokens.depth`` becomes
            ``depth``; groups are taken apart.

        Returns
        -------
        dict
        """
        found: dict[str, Any] = {}
        said: dict[str, str] = {}
        for given, value in options.items():
            parts = {given: value}
            if given in cls.groups:
                if not isinstance(value, Mapping | Group | None):
                    raise InputError(f"{given} must be a group of options, got {value!r}")
                inside = value.given if isinstance(value, Group) else value or {}
                parts = {f"{given}.{option}": chosen for option, chosen in inside.items()}
            for part, chosen in parts.items():
                name = cls.setting_name(part)
                if name in found and repr(found[name]) != repr(chosen):
                    raise InputError(_twice(said[name], found[name], part, chosen))
                found[name], said[name] = chosen, part
        return found

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Make an estimator.

        Parameters
        ----------
        settings : mapping from str
            Parameters by their one name; see ``settings``.

        Returns
        -------
        estimator
        """
        flat: dict[str, Any] = {}
        options: dict[str, dict[str, Any]] = {}
        for name, value in settings.items():
            group, nested, option = name.partition("__")
            if nested:
                options.setdefault(group, {})[option] = value
            else:
                flat[name] = value
        return cls(**flat, **{name: cls.groups[name](**some) for name, some in options.items()})

    @classmethod
    def usual_settings(cls) -> dict[str, Any]:
        """Every parameter under its one name, as it is if nothing is given."""
        parameters = inspect.signature(cls).parameters
        found = {
            name: cls._usual(cls.shortcuts[name], name) if name in cls.shortcuts else p.default
            for name, p in parameters.items()
            if name not in cls.groups
        }
        for name, group in cls.groups.items():
            for option in group.options():
                if option not in cls.shortcuts:
                    found[f"{name}__{option}"] = cls._usual(name, option)
        return found

    @classmethod
    def setting_name(cls, name: str) -> str:
        """Find the one name of a parameter.

        Parameters
        ----------
        name : str
            Any of its names; see ``settings``.

        Returns
        -------
        str
        """
        group, nested, option = name.replace(".", "__").partition("__")
        if nested and group in cls.groups:
            if option not in cls.groups[group].options():
                raise InputError(_unknown(cls, name))
            return option if cls.shortcuts.get(option) == group else f"{group}__{option}"
        if name in inspect.signature(cls).parameters:
            return name
        homes = [home for home, group in cls.groups.items() if name in group.options()]
        if len(homes) == 1:
            return f"{homes[0]}__{name}"
        if name in _RENAMED:
            raise InputError(f"{name!r} is called {_RENAMED[name]!r} now")
        if homes:
            both = " and ".join(f"{home}.{name}" for home in homes)
            raise InputError(f"{name!r} may be {both}; say which")
        raise InputError(_unknown(cls, name))

    @classmethod
    def _usual(cls, group: str, option: str) -> Any:
        """The value of an option that is not given."""
        if option in _AUTO.get(group, ()):
            return "auto"
        return cls.groups[group].model_fields[option].default

    def _given(self, name: str) -> dict[str, Any]:
        """The options that the group of that name was given."""
        group, value = self.groups[name], getattr(self, name)
        if value is None:
            return {}
        if isinstance(value, dict) and all(isinstance(option, str) for option in value):
            value = group(**value)
        if not isinstance(value, group):
            raise InputError(
                f"{name} must be a {group.__name__} or a dict of its options, got {value!r}"
            )
        for option in value.given:
            if option in group.set_by:
                raise InputError(
                    f"{name}: {option} is set by {group.set_by[option]}; leave it out of the group"
                )
        return value.given

    def _options(self, name: str) -> dict[str, Any]:
        """The options of a group, with those of the flat parameters that are shortcuts to it."""
        found = self._given(name)
        for option, group in self.shortcuts.items():
            flat = getattr(self, option)
            if group != name or flat is None:
                continue
            if option in found and found[option] != self._checked(name, option, flat):
                raise InputError(_twice(option, flat, f"{name}.{option}", found[option]))
            found[option] = flat
        return found

    def _checked(self, group: str, option: str, value: Any) -> Any:
        """``value`` as the group has it, if the group takes it."""
        if isinstance(value, str) and value == "auto":
            return value
        try:
            return getattr(self.groups[group](**{option: value}), option)
        except InputError:
            return value

    def _changed(self, name: str) -> list[str]:
        """Options of a group that are not as usual."""
        return [
            option
            for option, value in self._options(name).items()
            if repr(self._checked(name, option, value)) != repr(self._usual(name, option))
        ]


def _twice(one: str, value: Any, other: str, another: Any) -> str:
    return f"{one}={value!r} and {other}={another!r} are the same parameter; give it once"


def _unknown(cls: type[GroupedParameters], name: str) -> str:
    group, _, option = name.replace("__", ".").rpartition(".")
    known = {s.rpartition("__")[2]: s.replace("__", ".") for s in cls.usual_settings()}
    where = cls.__name__
    if "tokens" not in cls.groups and (
        "tokens" in (group, option) or option in TokenConfig.options()
    ):
        return f"unknown parameter {name!r}: {where} has no tokens; leave it out, or use an RFormer"
    if group in cls.groups:
        known = {option: f"{group}.{option}" for option in cls.groups[group].options()}
        where = group
    near = difflib.get_close_matches(option, known, n=1)
    if near:
        return f"unknown parameter {name!r}; did you mean {known[near[0]]!r}?"
    listed = known if group in cls.groups else inspect.signature(cls).parameters
    return f"unknown parameter {name!r}; {where} has {', '.join(listed)}"
