"""FedLinUCB and AsyncLinUCB as public code has them: objects, matrices inverted and determinants formed every step."""

import numpy as np


class ClientObject:
    """What a client has: sums that the server knows, and its own since."""

    def __init__(self, dim: int, lam: float) -> None:
        self.V, self.b = lam * np.eye(dim), np.zeros(dim)
        self.local_V, self.local_b = np.zeros((dim, dim)), np.zeros(dim)

    def decide(self, arms: np.ndarray, V: np.ndarray, b: np.ndarray, width: float) -> int:
        inverse = np.linalg.inv(V)
        theta = np.dot(inverse, b)
        best, chosen = -np.inf, 0
        for k, x in enumerate(arms):
            score = np.dot(theta, x) + width * np.sqrt(np.dot(np.dot(x, inverse), x))
            if score > best:
                best, chosen = score, k
        return chosen

    def see(self, x: np.ndarray, reward: float) -> None:
        self.local_V += np.outer(x, x)
        self.local_b += reward * x


def fedlinucb_objects(
    arms: np.ndarray, theta: np.ndarray, noise: np.ndarray, alpha: float = 1.0, beta: float = 0.5, lam: float = 1.0
) -> tuple[float, int]:
    """M clients with arms (M, K, d), T = noise.shape[1] rounds; returns regret and uploads."""
    M, _, d = arms.shape
    clients = [ClientObject(d, lam) for _ in range(M)]
    server_V, server_b = lam * np.eye(d), np.zeros(d)
    means = arms @ theta
    regret, uploads = 0.0, 0
    for t in range(noise.shape[1]):
        for i, client in enumerate(clients):
            k = client.decide(arms[i], client.V, client.b, beta)
            client.see(arms[i, k], means[i, k] + noise[i, t])
            regret += means[i].max() - means[i, k]
            if np.linalg.det(client.V + client.local_V) > (1 + alpha) * np.linalg.det(client.V):
                server_V, server_b = server_V + client.local_V, server_b + client.local_b
                client.V, client.b = server_V.copy(), server_b.copy()
                client.local_V, client.local_b = np.zeros((d, d)), np.zeros(d)
                uploads += 1
    return regret, uploads


def async_linucb_objects(
    arms: np.ndarray, theta: np.ndarray, noise: np.ndarray, gamma: float = 6.0, alpha: float = 0.5, lam: float = 1.0
) -> tuple[float, int]:
    """The same of AsyncLinUCB."""
    M, _, d = arms.shape
    clients = [ClientObject(d, lam) for _ in range(M)]
    server_V, server_b = lam * np.eye(d), np.zeros(d)
    means = arms @ theta
    regret, uploads = 0.0, 0
    for t in range(noise.shape[1]):
        for i, client in enumerate(clients):
            k = client.decide(arms[i], client.V + client.local_V, client.b + client.local_b, alpha)
            client.see(arms[i, k], means[i, k] + noise[i, t])
            regret += means[i].max() - means[i, k]
        for client in clients:
            if np.linalg.det(client.V + client.local_V) > gamma * np.linalg.det(client.V):
                server_V, server_b = server_V + client.local_V, server_b + client.local_b
                client.V, client.b = client.V + client.local_V, client.b + client.local_b
                client.local_V, client.local_b = np.zeros((d, d)), np.zeros(d)
                uploads += 1
                for other in clients:
                    if np.linalg.det(server_V) > gamma * np.linalg.det(other.V):
                        other.V, other.b = server_V.copy(), server_b.copy()
    return regret, uploads
