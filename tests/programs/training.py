"""Training and functional transforms: forward runs again in backward, under vmap, with other
weights, in copies, and with parts replaced between calls. Prints exact values."""

import copy

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return x + self.b(self.a(x).tanh())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.drop = Block(), Block(), nn.Dropout(0.5)

    def forward(self, x, again=True):
        x = checkpoint(self.first, x, use_reentrant=False) if again else self.first(x)
        return self.second(self.drop(x))


class Double(nn.Module):
    def forward(self, w):
        return 2 * w


net = Net()
seen = []
net.second.register_forward_hook(lambda module, args, output: seen.append(1) or output * 1.5)
net.register_forward_pre_hook(lambda module, args, kwargs: (args, kwargs), with_kwargs=True)
backward = net.register_full_backward_hook(lambda module, gave, got: seen.append(2))
ema, optimizer = copy.deepcopy(net), torch.optim.Adam(net.parameters(), 0.1)
for _ in range(3):
    loss = net(torch.randn(5, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, its in zip(ema.parameters(), net.parameters(), strict=True):
            mine.lerp_(its, 0.1)
        print(loss.item().hex(), ema(torch.ones(1, 4)).sum().item().hex(), len(seen))
net.eval()
backward.remove()
weights = {name: value.detach() for name, value in net.named_parameters()}
x = torch.randn(3, 4)


def energy(weights, x):
    return functional_call(net, weights, (x,), {"again": False}).square().sum()


gradient = vmap(grad(energy), in_dims=(None, 0))(weights, x)
print(sum(value.sum().item() for value in gradient.values()).hex(), len(seen))
with torch.autocast("cpu", torch.bfloat16):
    print(net(x, again=False).dtype, net(x).float().sum().item().hex())
parametrize.register_parametrization(net.first.a, "weight", Double())
print(net(x).sum().item().hex(), len(seen))
net.second = Block()
net.forward = lambda x: Net.forward(net, x, again=False) + 1
with torch.inference_mode():
    print(net(x).sum().item().hex(), len(seen))
double = copy.deepcopy(ema).double()
print(
    double(x.double()).sum().item().hex(), [tuple(v.shape) for v in ema.state_dict().values()][:2]
)
print(sorted(vars(ema)))
