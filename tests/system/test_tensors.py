"""PyTorch's tensors between contexts: memory is shared, and what a tensor is stays as it was."""

from __future__ import annotations

from support.child import run_child

HOST = """
import warnings, torch, vlcs
a = vlcs.VLC("a")
a.run(lambda: __import__("torch").set_num_threads(1))  # imports it there

def where(tensor):
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype)

def there_and_back(tensor):
    back = a.run(lambda tensor: (where(tensor), tensor), tensor)
    assert back[0] == where(tensor) == where(back[1]), (back[0], where(tensor), where(back[1]))
    assert type(back[1]) is type(tensor) and back[1].requires_grad == tensor.requires_grad
    return back[1]
"""


def test_dtypes_and_strides() -> None:
    run_child(
        HOST
        + """
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # complex32 is "experimental"
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    tried = set()
    for dtype in dtypes - {torch.qint8, torch.qint32, torch.quint8, torch.quint4x2, torch.quint2x4}:
        tensor = torch.arange(48, dtype=torch.uint8).view(dtype)
        back = there_and_back(tensor)
        back.view(torch.uint8)[0] = 77                   # written here, through what came back
        assert tensor.view(torch.uint8)[0] == 77
        tried.add(dtype)
    assert {torch.bool, torch.bfloat16, torch.complex32, torch.uint64, torch.float8_e4m3fn} <= tried

grid = torch.arange(24.0).reshape(4, 6)
for view in (
    grid, grid.t(), grid[1:3, ::2], grid[:, 1], grid[0, 0].expand(3, 5), grid[2, 3], grid[1:1],
    torch.empty(0), torch.empty(0, 3), torch.tensor(1.5),
    grid.as_strided((3, 3), (1, 2), 4), grid.unfold(0, 2, 1),
):
    assert torch.equal(there_and_back(view), view)

def write(tensor):
    tensor[0] = -1
a.run(write, grid[::2, 1])
assert grid[0, 1] == -1 and grid[2, 1] == 13             # written there, seen here

# Views of one storage are views of one storage there.
assert a.run(lambda x, y: x.untyped_storage() is y.untyped_storage(), grid[0], grid[1])

turned = torch.tensor([1 + 2j, 3j]).conj()
assert there_and_back(turned).is_conj() and torch.equal(there_and_back(turned), turned)
assert there_and_back(turned.imag).is_neg() and torch.equal(there_and_back(turned.imag), turned.imag)
with torch.inference_mode():
    there_and_back(torch.ones(3))

# As with tensor.numpy(): memory that others look at keeps its place.
lent = torch.ones(4)
held = there_and_back(lent)
try:
    lent.resize_(1_000_000)
except RuntimeError as error:
    assert "not resizable" in str(error)
else:
    raise SystemExit("the memory moved")
""",
        timeout=90,
    )


def test_autograd() -> None:
    run_child(
        HOST
        + """
leaf = torch.ones(3, requires_grad=True)
there_and_back(leaf)                                    # a leaf stays one
leaf.grad = torch.ones(3)
assert there_and_back(leaf).grad is None                # its gradient stays, as when it is pickled
parameter = torch.nn.Parameter(torch.ones(3), requires_grad=False)
there_and_back(parameter)

for call in (lambda: a.run(len, leaf * 2), lambda: a.run(lambda tensor: tensor * 2, leaf)):
    try:
        call()
    except vlcs.PicklingError as error:
        assert "cannot leave its context; pass tensor.detach()" in str(error), error
    else:
        raise SystemExit("the graph was lost")
there_and_back((leaf * 2).detach())
assert a.run(lambda tensor: (tensor * 2).sum().item(), leaf) == 6

# Training there moves the weights here.
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
before = model[0].weight.detach().clone()
def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.arange(12.0).reshape(4, 3)).square().sum().backward()
    optimizer.step()
    return model.state_dict()
state = a.run(train, model)
assert not torch.equal(model[0].weight, before)
for name, tensor in model.state_dict().items():
    assert where(tensor) == where(state[name]), name
""",
        timeout=90,
    )


def test_other_kinds() -> None:
    run_child(
        HOST
        + """
warnings.simplefilter("ignore")  # of PyTorch, on kinds that are in beta or about to go
class Marked(torch.Tensor):
    pass
grid = torch.arange(24.0).reshape(4, 6)
marked = there_and_back(grid.as_subclass(Marked))
noted = torch.ones(3)
noted.note = "mine"
assert there_and_back(noted).note == "mine"

rows = lambda tensor, *parts: [getattr(tensor, part)().data_ptr() for part in parts]
for tensor, parts in (
    (grid.to_sparse(), ("_indices", "_values")),
    (grid.to_sparse_csr(), ("crow_indices", "col_indices", "values")),
    (grid.to_sparse_csc(), ("ccol_indices", "row_indices", "values")),
    (grid.to_sparse_bsr((2, 2)), ("crow_indices", "col_indices", "values")),
    (grid.to_sparse_bsc((2, 2)), ("ccol_indices", "row_indices", "values")),
):
    back = a.run(lambda tensor: tensor, tensor)
    assert back.layout == tensor.layout and torch.equal(back.to_dense(), grid)
    assert rows(back, *parts) == rows(tensor, *parts) == a.run(rows, tensor, *parts)

def fail(tensor):
    raise ValueError(tensor)                             # an exception crosses in one piece: by a copy
try:
    a.run(fail, grid)
except ValueError as error:
    assert torch.equal(error.args[0], grid)

quantized = torch.quantize_per_tensor(grid, 0.1, 3, torch.quint8)
back = there_and_back(quantized)
assert back.q_scale() == 0.1 and torch.equal(back.dequantize(), quantized.dequantize())
nested = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])
assert [part.tolist() for part in a.run(lambda tensor: tensor, nested).unbind()] == [[1, 1], [0, 0, 0]]
shapes = lambda tensor: (str(tensor.device), tuple(tensor.shape))
assert a.run(shapes, torch.empty(2, 3, device="meta")) == ("meta", (2, 3))
""",
        timeout=90,
    )


def test_lifetime() -> None:
    run_child(
        HOST
        + """
import contextlib, gc, os, time, weakref
def is_there(context):
    \"\"\"Whether the first thread of a context is, which goes with its interpreter.\"\"\"
    names = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):               # it ends right now
            names.append(open(f"/proc/self/task/{thread}/comm").read().strip())
    return f"vlc:{context}" in names

b = vlcs.VLC("b")

# Dropped there, read here; then its context is closed as well.
made = a.run(lambda: torch.full((300_000,), 3.5))
passed = b.run(lambda tensor: tensor, made)              # a -> host -> b -> host: the same memory
assert where(passed) == where(made)
a.run(gc.collect)
del made
a.close()
assert is_there("a") and bool((passed == 3.5).all())
b.run(lambda tensor: tensor.mul_(2), passed)
assert passed[0] == 7
del passed
deadline = time.monotonic() + 10
while is_there("a"):                       # the context of its memory goes with it
    assert time.monotonic() < deadline
    time.sleep(0.01)

# Dropped here, read there.
def keep(tensor):
    import builtins
    builtins.kept = tensor
mine = torch.full((300_000,), 2.25)
storage = weakref.ref(mine.untyped_storage())
b.run(keep, mine)
del mine
gc.collect()
assert b.run(lambda: bool((__import__("builtins").kept == 2.25).all()))
b.run(lambda: delattr(__import__("builtins"), "kept"))
""",
        timeout=90,
    )


def test_many_calls_leave_nothing() -> None:
    run_child(
        HOST
        + """
import gc
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
def some_calls(count):
    for number in range(count):
        tensor = torch.full((2500 + number % 7,), 1.0)
        assert a.run(torch.Tensor.add_, tensor, 1.0)[-1] == 2.0
    gc.collect()
    a.run(gc.collect)
some_calls(2000)
before = resident()
some_calls(10_000)
grown = resident() - before
assert grown < 2 << 20, grown                            # held, the tensors would be 100 MB
""",
        timeout=120,
    )
