"""Fake tensors on a fake GPU: shapes, devices and storage as on a real one, and nothing is computed. Counts what would
wait for the device, and the bytes that lie on it."""

import weakref
from collections import Counter
from contextlib import ExitStack, contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

BLOCK = 512
"""Bytes in which CUDA's allocator of torch counts."""


def tensors(values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


class Watch(TorchDispatchMode):
    """`seen`: copies to the CPU and back, waits, products of narrow numbers in float32;
    `now` and `peak`: bytes of storages on the device."""

    def __init__(self):
        super().__init__()
        self.seen, self.now, self.peak, self.known, self.pinned = Counter(), 0, 0, {}, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.seen["wide products"] += func is torch.ops.aten.mm.dtype
        away = any(tensor.device.type == "cpu" for tensor in tensors((args, kwargs)))
        for tensor in tensors(out):
            if tensor.device.type == "cuda":
                self.note(tensor.untyped_storage())
        if away and any(tensor.device.type == "cuda" for tensor in tensors(out)) and func._overloadpacket in COPIES:
            self.seen["copies back"] += 1
            free = id(args[0].untyped_storage()) in self.pinned and bool((kwargs or {}).get("non_blocking"))
            self.seen["waits"] += not free
        return out

    def note(self, storage):
        """Count a storage once, for as long as it lives."""
        key, size = storage._cdata, -(-storage.nbytes() // BLOCK) * BLOCK
        if key in self.known:
            return

        def free(_):
            self.now -= size
            del self.known[key]

        self.known[key] = weakref.ref(storage, free)
        self.now += size
        self.peak = max(self.peak, self.now)

    @contextmanager
    def phase(self, into: dict):
        """What is seen inside, into a dictionary: counts, and the peak in bytes."""
        before, self.peak = Counter(self.seen), self.now
        yield
        into.update({name: self.seen[name] - before[name] for name in SEEN})
        into["peak"] = self.peak


SEEN = ("copies", "copies back", "waits", "wide products")
COPIES = (torch.ops.aten._to_copy, torch.ops.aten.copy_)


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The kernels that a GPU takes, with the number type that autocast gives them: flash where there is no mask, which
    reads grouped heads as they are; otherwise the memory-efficient one, which copies a mask with
    rows that are not aligned."""
    narrow = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
    query, key, value = (part.to(narrow) for part in (query, key, value))
    with torch.autocast("cuda", enabled=False):
        if attn_mask is None:
            key, value = (part[:, :1].expand_as(query) for part in (key, value))
            kernel = torch.ops.aten._scaled_dot_product_flash_attention
            return kernel(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        width = attn_mask.shape[-1]
        mask = attn_mask.to(narrow)
        if any(stride % 8 for stride in mask.stride()[:-1]):
            mask = functional.pad(mask, (0, 8 - width % 8))[..., :width]
        mask = mask.expand(*query.shape[:3], width)
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        grad = torch.is_grad_enabled()
        return kernel(query, key, value, mask, grad, dropout_p, is_causal, scale=scale)[0]


@contextmanager
def fake_gpu():
    """Everything inside is fake; yields the watch. What comes to the CPU is 1 throughout."""
    names = ("cpu", "pin_memory", "numpy", "__float__")
    watch, plain = Watch(), {name: getattr(torch.Tensor, name) for name in names}

    def cpu(tensor, *more):
        if not isinstance(tensor, FakeTensor) or tensor.device.type != "cuda":
            return plain["cpu"](tensor, *more)
        watch.seen.update(("copies", "waits"))
        with _disable_current_modes():
            return torch.ones(tuple(tensor.shape), dtype=tensor.dtype)

    def pin_memory(tensor):
        watch.pinned.add(id(tensor.untyped_storage()))
        return tensor

    def array(tensor, **named):
        if not isinstance(tensor, FakeTensor) or tensor.device.type != "cpu":
            return plain["numpy"](tensor, **named)
        with _disable_current_modes():
            return torch.ones(tuple(tensor.shape), dtype=tensor.dtype).numpy()

    def number(tensor):
        if not isinstance(tensor, FakeTensor):
            return plain["__float__"](tensor)
        watch.seen["waits"] += tensor.device.type == "cuda"
        return 1.0

    sdpa, no_amp = functional.scaled_dot_product_attention, torch.cuda.amp.common.amp_definitely_not_available
    bf16 = torch.cuda.is_bf16_supported
    with ExitStack() as stack:
        for name, new in zip(names, (cpu, pin_memory, array, number), strict=True):
            setattr(torch.Tensor, name, new)
            stack.callback(setattr, torch.Tensor, name, plain[name])
        for place, name, new, old in (
            (functional, "scaled_dot_product_attention", attention, sdpa),
            (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False, no_amp),
            (torch.cuda, "is_bf16_supported", lambda *more, **named: True, bf16),
        ):
            setattr(place, name, new)
            stack.callback(setattr, place, name, old)
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield stack.enter_context(watch)
