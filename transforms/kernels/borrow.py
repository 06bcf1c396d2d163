"""Arrays without reference counting.

Numba counts references atomically for every array that a function passes on, which costs more than the work
of a small helper. A borrowed array has no owner to count for; the caller of the kernel keeps the real one.
"""

from typing import Any

from numba.extending import intrinsic, overload


@intrinsic
def _without_owner(typing_context, array):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        view = context.make_array(signature.args[0])(context, builder, value=args[0])
        view.meminfo = view.meminfo.type(None)
        view.parent = view.parent.type(None)
        return view._getvalue()

    return array(array), codegen


def borrowed(array: Any) -> Any:
    """Return the array as one that is not counted; it must not outlive the kernel call."""
    return array


@overload(borrowed)
def _borrowed(array):  # type: ignore[no-untyped-def]
    return lambda array: _without_owner(array)  # noqa: PLW0108 - the signature is what Numba goes by
