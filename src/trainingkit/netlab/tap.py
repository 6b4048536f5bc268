"""TAP devices: a network device whose other end is a file, where frames are read and written.

Frames carry a 10-byte virtio header, so that the kernel may leave checksums open and, with `segments`, hand over up to
64 kB of one TCP stream as a single frame. That is what makes a relay in Python quick enough.
"""

from __future__ import annotations

import fcntl
import os
import struct

TUN_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_IFF_VNET_HDR = 0x4000
_TUN_F_CSUM = 0x01
_TUN_F_TSO4 = 0x02
_TUN_F_TSO6 = 0x04


def open_tap(name: str, *, segments: bool) -> int:
    """Make the TAP device `name` in the current network namespace; it lives as long as the file is open.

    Args:
        segments: accept TCP segments that are longer than a frame (up to 64 kB).

    Returns:
        A non-blocking file descriptor.

    Raises:
        OSError: no TAP support, or no right to use it.
    """
    handle = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        request = struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR)
        fcntl.ioctl(handle, _TUNSETIFF, request)
        offload = _TUN_F_CSUM | (_TUN_F_TSO4 | _TUN_F_TSO6 if segments else 0)
        fcntl.ioctl(handle, _TUNSETOFFLOAD, offload)
    except OSError:
        os.close(handle)
        raise
    return handle
