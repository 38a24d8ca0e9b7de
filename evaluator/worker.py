"""The jailed side of an evaluation: holds one model, answers one byte at a time.

This file runs alone in the jail (``python -I worker.py FD``): it needs torch and the standard library, nothing of
ours. Whatever it says is untrusted; the judge believes only its own clock and the bytes in its own buffers.

Life: send ``r`` once torch is imported (a spare may wait here for long), receive an assignment (descriptors by
SCM_RIGHTS, the first a JSON description, the second the report buffer), load, answer ``l``. From then on:

    g  run forward; say where the outputs lie                        d  done
    w  load the weights that lie in the weights buffer               w  loaded
    b  construct the model anew, then load the weights               w  loaded
       (where weights go by seed: both construct it with the seed that lies in the report buffer)
    i  draw inputs with the seed that lies in the report buffer      d  drawn
                                                                     e  failed; the report buffer says how
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import gc
import glob
import importlib.util
import io
import json
import linecache
import mmap
import operator
import os
import socket
import struct
import sys
import tarfile
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any

ANYWHERE = os.sched_getaffinity(0)


def load_openmp() -> set[int]:
    """Load torch's OpenMP runtime alone, which binds this thread to its place; the cores it chose.

    All workers are bound to the same first core, so that importing torch bound would make them wait for each other.
    """
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in glob.glob(os.path.join(folder, "lib", "libgomp*.so*")):
            with contextlib.suppress(OSError):
                ctypes.CDLL(path)
    return os.sched_getaffinity(0)


PLACE = load_openmp()
os.sched_setaffinity(0, ANYWHERE)
gc.disable()  # a sixth of the time that the import takes

import torch  # noqa: E402
import torch.utils.cpp_extension  # noqa: E402  (most candidates need it, and a spare has the time)

os.sched_setaffinity(0, PLACE)
gc.freeze()  # what was imported lives as long as the process: no collection inside the clock looks at it again
gc.enable()

EXTENSIONS = "/tmp/extensions"
SOURCE_LIMIT = 1 << 24
MOST_SPREAD = 4
"""Elements that the judge reads for one of the answer's: a view that is spread wider is packed first."""
MAX_FDS = 250
MEMORY_WORDS = ("can't allocate memory", "out of memory", "bad_alloc")
BUILD_WORDS = ("error building extension", "ninja is required", "error compiling")

Meta = dict[str, Any]


class Failure(Exception):
    """Something that the report names by kind."""

    def __init__(self, kind: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.detail = kind, message, detail


class Worker:
    model: Any
    module: types.ModuleType
    report: mmap.mmap
    weights_map: mmap.mmap
    structure: str
    state_spec: list[Meta]

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.inputs: list[Any] = []
        self.outputs: list[tuple[torch.Size, torch.dtype]] = []
        self.answer: list[torch.Tensor] = []
        """What forward returned last: it must live until the judge has read it."""
        self.unused: list[str] = []
        self.rest: list[int] = []
        self.construct: Callable[[], Any] = lambda: None
        self.forward: Callable[[], list[torch.Tensor]] = self.run_model
        self.double = self.by_seed = False

    # -- assignment ---------------------------------------------------------------------------------------------

    def receive(self) -> tuple[Meta, list[int]]:
        length, fds, _, _ = socket.recv_fds(self.control, 4, MAX_FDS)
        if not length:
            os._exit(0)
        meta = json.loads(read_text(fds[0]))
        self.report = mmap.mmap(fds[1], 0)
        return meta, fds[2:]

    def attach(self, meta: Meta, fds: Sequence[int]) -> None:
        """Map the judge's buffers: inputs, then the weights, which this process can only read."""
        left = iter(fds)
        self.inputs = [
            map_tensor(next(left), s) if "shape" in s else ast.literal_eval(s["literal"]) for s in meta["inputs"]
        ]
        self.outputs = [(torch.Size(s["shape"]), getattr(torch, s["dtype"])) for s in meta["outputs"]]
        self.structure = meta["structure"]
        self.state_spec = meta["state"]
        self.weights_map = mmap.mmap(next(left), 0, access=mmap.ACCESS_READ)
        self.rest = list(left)

    # -- loading ------------------------------------------------------------------------------------------------

    def load(self, meta: Meta, source: str) -> None:
        module = execute(source, meta["module"])
        cls = getattr(module, meta["class"], None)
        if cls is None:
            raise Failure("load_error", f"the module defines no {meta['class']}")
        if meta["init"] is not None:
            init = ast.literal_eval(meta["init"])
        else:
            problem = module if meta["module"] == "problem" else execute(meta["problem_source"], "problem")
            init = problem.get_init_inputs()

        self.by_seed = meta["by_seed"]

        def construct() -> Any:
            torch.manual_seed(self.seed() if self.by_seed else meta["seed"])
            return cls(*init)

        self.module, self.construct = module, construct
        self.model = construct()

    def weights(self) -> dict[str, torch.Tensor]:
        """The reference's state by name, in private memory: the candidate may keep or change what it is given."""
        state = {}
        for s in self.state_spec:
            dtype, count = getattr(torch, s["dtype"]), count_of(s)
            value = torch.empty(s["shape"], dtype=dtype)
            if count:
                raw = bytearray(self.weights_map[s["offset"] : s["offset"] + count * dtype.itemsize])
                value = torch.frombuffer(raw, dtype=dtype, count=count).view(s["shape"])
            state[s["name"]] = value.double() if self.double and value.is_floating_point() else value
        return state

    def load_weights(self) -> None:
        """By name; where a seed made them there is nothing to load.

        Parameters that the reference has and this model lacks may be dead; the outputs will tell.
        """
        if self.by_seed:
            return
        model, state = self.model, self.weights()
        if not hasattr(model, "load_state_dict"):
            raise Failure(
                "weights_not_transferable", "the model has no load_state_dict: derive it from torch.nn.Module"
            )
        own = {name for name, _ in model.named_parameters()} if hasattr(model, "named_parameters") else set()
        try:
            result = model.load_state_dict(state, strict=False)
        except TypeError:
            result = model.load_state_dict(state)  # an override that takes the state alone
        except RuntimeError as error:
            if "size mismatch" not in str(error):
                raise
            message = "a parameter has another shape than the reference's of that name"
            raise Failure("weights_not_transferable", message, str(error)) from error
        missing = sorted(set(getattr(result, "missing_keys", None) or ()) & own)
        self.unused = sorted(getattr(result, "unexpected_keys", None) or ())
        if missing:
            raise Failure(
                "weights_not_transferable",
                "weights are loaded by the reference's parameter names; it has none named " + ", ".join(missing[:12]),
                "its names left over: " + ", ".join(self.unused[:12]),
            )

    # -- the problem's own worker ---------------------------------------------------------------------------------

    def describe(self) -> Meta:
        """Shapes and dtypes of inputs, outputs and state, from one run of the reference."""
        init: str | None = repr(self.module.get_init_inputs())
        try:
            ast.literal_eval(str(init))
        except (ValueError, SyntaxError):
            init = None
        torch.manual_seed(1)
        inputs = list(self.module.get_inputs())
        with torch.no_grad():
            leaves, structure = flatten(self.model(*inputs))
        parameters = {name for name, _ in self.model.named_parameters()}
        state, offset = [], 0
        for name, v in self.model.state_dict().items():
            state.append(spec_of(v) | {"name": name, "offset": offset, "parameter": name in parameters})
            offset += -(-v.numel() * v.element_size() // 64) * 64
        return {
            "init": init,
            "inputs": [spec_of(x) if isinstance(x, torch.Tensor) else {"literal": literal(x)} for x in inputs],
            "outputs": [spec_of(t) for t in leaves],
            "structure": structure,
            "state": state,
            "state_bytes": max(offset, 64),
        }

    def write_state(self, fd: int) -> None:
        memory = mmap.mmap(fd, 0)
        for s, v in zip(self.state_spec, self.model.state_dict().values(), strict=True):
            if v.numel():
                raw = v.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
                memory[s["offset"] : s["offset"] + len(raw)] = raw

    def go_double(self) -> None:
        """From here on compute in float64, whatever dtype the model's own constants were written for."""
        single = self.construct

        def construct() -> Any:
            torch.set_default_dtype(torch.float32 if self.by_seed else torch.float64)  # a draw depends on its dtype
            try:
                return single().double()
            finally:
                torch.set_default_dtype(torch.float64)

        self.construct = construct
        self.model = self.construct()
        self.double = True
        self.forward = self.run_double

    def go_null(self) -> None:
        """Answer with a ready output of the right shape: what the protocol itself costs."""
        ready = [torch.zeros(shape, dtype=dtype) for shape, dtype in self.outputs]
        self.forward = lambda: ready

    def draw(self) -> None:
        """Fresh inputs as the problem draws them (in float32), written into this worker's own input buffers."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            torch.manual_seed(self.seed())
            for mine, x in zip(self.inputs, self.module.get_inputs(), strict=True):
                if isinstance(mine, torch.Tensor):
                    mine.copy_(x)
        finally:
            torch.set_default_dtype(default)

    def seed(self) -> int:
        """The one that lies in the report buffer."""
        return int(struct.unpack("<q", self.report[:8])[0])

    # -- answering ----------------------------------------------------------------------------------------------

    def run_model(self) -> list[torch.Tensor]:
        return self.leaves(self.model(*self.inputs))

    def run_double(self) -> list[torch.Tensor]:
        double = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in self.inputs]
        return self.leaves(self.model(*double))

    def leaves(self, result: Any) -> list[torch.Tensor]:
        """The tensors of a result, of the right shapes and dtypes, and readable where they lie.

        This runs inside the clock and mostly with cold caches, so that the plain case comes first and looks at little.
        """
        if type(result) is torch.Tensor and len(self.outputs) == 1:
            shape, dtype = self.outputs[0]
            if result.shape == shape and result.dtype is dtype and is_plain(result) and self.structure == "tensor":
                return [result]
        found, structure = flatten(result)
        if structure != self.structure:
            raise Failure("wrong_shape", f"forward returned {structure}, the reference returns {self.structure}")
        return [self.checked(n, mine) for n, mine in enumerate(found)]

    def checked(self, n: int, mine: torch.Tensor) -> torch.Tensor:
        shape, dtype = self.outputs[n]
        if mine.shape != shape:
            message = f"output {n} has shape {tuple(mine.shape)}, the reference's has {tuple(shape)}"
            raise Failure("wrong_shape", message)
        if mine.dtype != dtype:
            if not self.double:
                raise Failure("wrong_dtype", f"output {n} has dtype {mine.dtype}, the reference's has {dtype}")
            mine = mine.to(dtype)
        if mine.layout != torch.strided or mine.device.type != "cpu":
            raise Failure("wrong_shape", f"output {n} is no dense tensor in memory ({mine.layout}, {mine.device})")
        mine = mine.resolve_conj().resolve_neg()
        return mine if span_of(mine.shape, mine.stride()) <= MOST_SPREAD * mine.numel() else mine.contiguous()

    def call(self) -> None:
        """One forward. The judge reads the answer out of this process's memory once all of it is stopped."""
        self.answer = []  # the last one's memory is free again, as it is for any caller
        self.answer = self.forward()
        table: list[int] = []
        for mine in self.answer:
            table += [mine.data_ptr(), *mine.stride()]
        struct.pack_into(f"<{len(table)}q", self.report, 8, *table)

    def serve(self) -> None:
        with torch.no_grad():
            while byte := self.control.recv(1):
                try:
                    self.control.send(self.obey(byte))
                except BaseException as error:
                    self.fail(error)

    def obey(self, byte: bytes) -> bytes:
        if byte == b"g":
            self.call()
            return b"d"
        if byte == b"i":
            self.draw()
            return b"d"
        if byte == b"b" or self.by_seed:
            self.model = self.construct()
        self.load_weights()
        return b"w"

    def fail(self, error: BaseException) -> None:
        flush()
        if isinstance(error, Failure):
            self.say(error.kind, error.message, error.detail)
        else:
            self.say(classify(error), f"{type(error).__name__}: {error}", traceback.format_exc())
        self.control.send(b"e")

    def say(self, kind: str, message: str, detail: str) -> None:
        account = {"kind": kind, "message": message[:4000], "detail": detail[-12000:], "unused": self.unused[:50]}
        text = json.dumps(account).encode()[: len(self.report) - 9]
        self.report[8 : 8 + len(text) + 1] = text + b"\0"


def flush() -> None:
    """What was printed reaches the log before this process may be killed; a full log takes no more."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()


def start(worker: Worker, meta: Meta, fds: list[int]) -> None:
    """Become what the assignment says."""
    role = meta["role"]
    if role == "null":
        worker.attach(meta, fds)
        worker.go_null()
    elif role == "build":
        worker.load(meta, read_text(fds[0]))
        pack_extensions(fds[1])
    elif role == "oracle":
        worker.load(meta, read_text(fds[0]))
        write_description(fds[1], worker.describe())
        worker.control.send(b"l")
        buffers, fds = worker.receive()
        worker.attach(buffers, fds)
        worker.write_state(worker.rest[0])
        if meta["double"]:
            worker.go_double()
        worker.load_weights()
    else:
        if meta["extensions"]:
            unpack_extensions(fds[-1])
        worker.load(meta, read_text(fds[0]))
        worker.attach(meta, fds[1:])
        worker.load_weights()


def execute(source: str, name: str) -> types.ModuleType:
    """Run ``source`` as module ``name``, with its text where tracebacks and ``inspect`` look for it."""
    path = f"/tmp/{name}.py"
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    with contextlib.suppress(OSError), open(path, "w") as f:
        f.write(source)
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def flatten(value: Any) -> tuple[list[torch.Tensor], str]:
    """Tensors of a result in order, and a text that says how they were nested."""
    if isinstance(value, torch.Tensor):
        return [value], "tensor"
    if isinstance(value, (tuple, list)):
        parts = [flatten(v) for v in value]
        return [t for leaves, _ in parts for t in leaves], "(" + ", ".join(s for _, s in parts) + ")"
    if isinstance(value, dict):
        named = [(k, flatten(value[k])) for k in sorted(value, key=str)]
        return [t for _, (p, _) in named for t in p], "{" + ", ".join(f"{k}: {s}" for k, (_, s) in named) + "}"
    message = (
        f"forward returned a {type(value).__name__}; only tensors, or tuples, lists or dicts of them, can be compared"
    )
    raise Failure("wrong_shape", message)


def classify(error: BaseException) -> str:
    text = f"{type(error).__name__} {error}".lower()
    if isinstance(error, MemoryError) or any(word in text for word in MEMORY_WORDS):
        return "out_of_memory"
    if isinstance(error, SyntaxError) or any(word in text for word in BUILD_WORDS):
        return "compile_error"
    return "error"


def is_plain(x: torch.Tensor) -> bool:
    """Whether its elements lie in this process's memory in order, as they are."""
    return x.layout is torch.strided and x.is_cpu and x.is_contiguous() and not x.is_conj() and not x.is_neg()


def span_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one of a strided tensor, both included."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def count_of(spec: Meta) -> int:
    count = 1
    for n in spec["shape"]:
        count *= n
    return count


def spec_of(x: torch.Tensor) -> Meta:
    return {"shape": list(x.shape), "dtype": str(x.dtype).removeprefix("torch.")}


def literal(value: Any) -> str:
    text = repr(value)
    ast.literal_eval(text)  # refuses what could not be passed on as text
    return text


def map_tensor(fd: int, spec: Meta) -> torch.Tensor:
    dtype, count = getattr(torch, spec["dtype"]), count_of(spec)
    if count == 0:
        return torch.empty(spec["shape"], dtype=dtype)
    return torch.frombuffer(mmap.mmap(fd, 0), dtype=dtype, count=count).view(spec["shape"])


def read_text(fd: int) -> str:
    with os.fdopen(os.dup(fd), "rb") as f:
        f.seek(0)
        return f.read(SOURCE_LIMIT).rstrip(b"\0").decode()


def write_description(fd: int, description: Meta) -> None:
    text = json.dumps(description).encode() + b"\0"
    memory = mmap.mmap(fd, 0)
    if len(text) > len(memory):
        raise Failure("error", "the problem's state has too many entries to describe")
    memory[: len(text)] = text


def pack_extensions(fd: int) -> None:
    """What was built, as one archive in the judge's buffer: its length, the number of libraries, then the bytes."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(EXTENSIONS, arcname=".", filter=whole_seconds)
        count = sum(name.endswith(".so") for name in tar.getnames())
    data = archive.getvalue()
    memory = mmap.mmap(fd, 0)
    if count and len(data) + 16 <= len(memory):
        memory[16 : 16 + len(data)] = data
        memory[:16] = struct.pack("<qq", len(data), count)


def whole_seconds(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """An archive rounds times, and an object that comes back a moment newer than ninja noted is built again."""
    info.mtime = int(info.mtime)
    return info


def unpack_extensions(fd: int) -> None:
    memory = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    length, _ = struct.unpack("<qq", memory[:16])
    with tarfile.open(fileobj=io.BytesIO(memory[16 : 16 + length])) as tar:
        tar.extractall(EXTENSIONS, filter="data")


def set_precision(mode: str) -> None:
    """Say it for every backend: the defaults differ between operators (cuDNN convolutions use TF32)."""
    for path in ("", "cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"):
        with contextlib.suppress(AttributeError, RuntimeError):
            owner: Any = operator.attrgetter(path)(torch.backends) if path else torch.backends
            owner.fp32_precision = mode


def main() -> None:
    os.environ["TORCH_EXTENSIONS_DIR"] = EXTENSIONS
    os.makedirs(EXTENSIONS, exist_ok=True)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.send(b"r")
    worker = Worker(control)
    meta, fds = worker.receive()
    try:
        set_precision(meta["fp32_precision"])
        torch.set_num_threads(meta["threads"])
        start(worker, meta, fds)
        flush()
        control.send(b"l")
    except BaseException as error:
        worker.fail(error)
    worker.serve()


if __name__ == "__main__":
    main()
