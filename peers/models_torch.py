"""The models of docs/models.md in PyTorch: an MLP that is trained, saved and loaded, a CNN, and a GPT block.

python3 peers/models_torch.py prints the lines of each, without comments and empty lines.
"""

# begin mlp
import torch
from torch import nn
from safetensors.torch import load_file, save_file


def mlp():
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))


def train_and_save(x, y, path):
    torch.manual_seed(42)
    net = mlp()
    adam = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(300):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        adam.step()
    save_file(net.state_dict(), path)


def load_and_predict(x, path):
    net = mlp()
    net.load_state_dict(load_file(path))
    net.eval()
    return net(x).argmax(-1).tolist()
# end


# begin cnn
class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.norm(self.conv1(x)).relu(), 2)
        return self.fc(self.conv2(x).relu().flatten(1))
# end


# begin gpt block
class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        hidden = nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh")
        return x + self.down(hidden)
# end


if __name__ == "__main__":
    import tempfile
    from pathlib import Path

    x, y = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([0, 1, 1, 0])
    with tempfile.TemporaryDirectory() as folder:
        train_and_save(x, y, f"{folder}/net.safetensors")
        assert load_and_predict(x, f"{folder}/net.safetensors") == [0, 1, 1, 0]
    assert Cnn()(torch.zeros(2, 1, 12, 12)).shape == (2, 10)
    assert Block(8, 2)(torch.zeros(1, 5, 8)).shape == (1, 5, 8)
    name, counts = None, {}
    for line in Path(__file__).read_text().splitlines():
        if line.startswith("# begin "):
            name = line.removeprefix("# begin ")
        elif line == "# end":
            name = None
        elif name and line.strip() and not line.strip().startswith("#"):
            counts[name] = counts.get(name, 0) + 1
    print(counts)
