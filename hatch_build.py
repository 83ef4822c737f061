"""Build hook: compiles the native kernel into the wheel; without a compiler torch is used."""

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeKernel(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        sys.path.insert(0, str(Path(self.root, "src")))
        from roughformer.signatures.native.build import BuildError, build, library_path

        try:
            build(verbose=True)
        except BuildError as error:
            if os.environ.get("ROUGHFORMER_REQUIRE_NATIVE"):
                raise
            # A stale library would be of another version: better none than a wrong one.
            library_path().unlink(missing_ok=True)
            self.app.display_warning(
                f"native kernel not built, the slower pure-torch engine will serve: {error}"
            )
            return
        # One wheel per platform for every Python 3: the library is plain C, loaded with ctypes.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
