"""A binary min-heap over two parallel arrays: key, and code to break ties. The caller keeps the count."""

from slackwater.transforms.kernels.compiler import kernel


@kernel
def push(keys, codes, n, key, code):  # type: ignore[no-untyped-def]
    """Add an entry to a heap of ``n``."""
    at = n
    while at > 0:
        parent = (at - 1) >> 1
        if keys[parent] < key or (keys[parent] == key and codes[parent] < code):
            break
        keys[at] = keys[parent]
        codes[at] = codes[parent]
        at = parent
    keys[at] = key
    codes[at] = code


@kernel
def pop(keys, codes, n):  # type: ignore[no-untyped-def]
    """Remove the smallest entry of a heap of ``n``; the caller has read it at index 0."""
    last = n - 1
    key = keys[last]
    code = codes[last]
    at = 0
    child = 1
    while child < last:
        right = child + 1
        if right < last and (
            keys[right] < keys[child] or (keys[right] == keys[child] and codes[right] < codes[child])
        ):
            child = right
        if key < keys[child] or (key == keys[child] and code < codes[child]):
            break
        keys[at] = keys[child]
        codes[at] = codes[child]
        at = child
        child = 2 * at + 1
    keys[at] = key
    codes[at] = code
