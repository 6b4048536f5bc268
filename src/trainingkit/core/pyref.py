"""Names of Python objects in recipes: "package.module:name", or "file.py:name"."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zlib
from pathlib import Path
from typing import Any

from trainingkit.core.errors import ConfigError
from trainingkit.core.nearest import nearest

EXPECTED = "'package.module:name' or 'path/to/file.py:name'"


def load_ref(ref: str, *, field: str) -> Any:
    """The object that `ref` names. The current folder is searched too, as `python -m` does.

    Raises:
        ConfigError: the text is not of that form, the module is missing or raises, or it has no such name.
    """
    module_name, colon, name = ref.rpartition(":")
    if not colon or not module_name or not name:
        raise ConfigError(
            "This does not name a Python object.",
            field=field,
            found=repr(ref),
            expected=EXPECTED,
            next_step="Put the name after a colon.",
        )
    module = _load_file(module_name, field) if module_name.endswith(".py") else _load_module(module_name, field)
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        close = nearest(name, public)
        raise ConfigError(
            f"{module_name} has no name {name!r}.",
            field=field,
            found=repr(ref),
            expected=EXPECTED,
            next_step=f"Did you mean {close!r}?" if close else "Define it there, or name another.",
        )
    return getattr(module, name)


def _load_module(module_name: str, field: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"The module {module_name!r} cannot be imported: {type(error).__name__}: {error}",
            field=field,
            found=repr(module_name),
            expected=EXPECTED,
            next_step=f"Try: python -c 'import {module_name}'",
        ) from error


def _load_file(file_name: str, field: str) -> Any:
    path = Path(file_name).resolve()
    if not path.is_file():
        raise ConfigError(
            "The Python file does not exist.",
            field=field,
            found=str(path),
            expected=EXPECTED,
            next_step="Check the spelling; a relative path starts at the folder where the command runs.",
        )
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise ConfigError(
            f"The file raises when it is loaded: {type(error).__name__}: {error}",
            field=field,
            found=str(path),
            next_step=f"Try: python {path}",
        ) from error
    return module


def _module_name(path: Path) -> str:
    """The file's own name, or one of its own where another module has that: a `random.py` must not replace Python's."""
    known = sys.modules.get(path.stem)
    is_other = known is not None and getattr(known, "__file__", None) != str(path)
    if is_other or path.stem in sys.stdlib_module_names:
        return f"{path.stem}_{zlib.crc32(str(path).encode('utf-8', 'surrogateescape')):08x}"
    return path.stem
