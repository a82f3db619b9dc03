"""Which library MuJoCo can draw with where there is no screen."""

from __future__ import annotations

import ctypes
import ctypes.util


def find_renderer() -> str | None:
    """``egl`` or ``osmesa``, as ``MUJOCO_GL`` takes it; None where neither library is there."""
    if _has_egl_device():
        return "egl"
    return "osmesa" if ctypes.util.find_library("OSMesa") else None


def _has_egl_device() -> bool:
    """Whether the EGL library finds a device to draw on (a graphics card or Mesa's software one)."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    except (OSError, AttributeError):
        return False
    if not address:
        return False
    count = ctypes.c_int(0)
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))(address)
    return bool(query(0, None, ctypes.byref(count))) and count.value > 0
