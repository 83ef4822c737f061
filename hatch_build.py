"""Build hook: compile the native kernel into the wheel.

``ROUGHFORMER_BUILD_NATIVE=always`` fails without it, ``never`` makes a pure wheel. By default
a failed compilation gives a pure wheel, in which torch computes the signatures.
"""

import os
import platform
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
        from roughformer.signatures.native import library_path
        from roughformer.signatures.native.build import BuildError, build

        wanted = os.environ.get("ROUGHFORMER_BUILD_NATIVE", "auto")
        try:
            if wanted == "never":
                raise BuildError("ROUGHFORMER_BUILD_NATIVE=never")
            build(verbose=True)
        except BuildError as error:
            if wanted == "always":
                raise
            # A stale library would be of another version: better none than a wrong one.
            library_path().unlink(missing_ok=True)
            self.app.display_warning(
                f"native kernel not built, the slower pure-torch engine will serve: {error}"
            )
            return
        # One wheel per platform for every Python 3: the library is plain C, loaded with ctypes.
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        # A Python built for both processors of a Mac still compiles for the one it runs on.
        tag = tag.replace("universal2", platform.machine())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
