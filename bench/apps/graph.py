# SPDX-License-Identifier: GPL-2.0-or-later
"""PageRank, components and a breadth-first order of a skewed random graph, with SciPy."""

import hashlib
import sys

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components

nodes, edges, rounds = (int(a) for a in sys.argv[1:])
rng = np.random.default_rng(1)
source = (rng.random(edges, dtype=np.float32) ** 2 * nodes).astype(np.int32)
target = rng.integers(0, nodes, edges, dtype=np.int32)
graph = csr_matrix((np.ones(edges, dtype=np.float32), (source, target)), shape=(nodes, nodes))
del source, target
degree = np.maximum(np.asarray(graph.sum(axis=1)).ravel(), 1)
inward = graph.T.tocsr()
rank = np.full(nodes, 1 / nodes, dtype=np.float32)
for _ in range(rounds):
    rank = (0.15 / nodes + 0.85 * (inward @ (rank / degree))).astype(np.float32)
del inward
top = np.argsort(-rank, kind="stable")[:1000]
count, _ = connected_components(graph, directed=False)
order = breadth_first_order(graph, int(top[0]), return_predecessors=False)
print(count, len(order), hashlib.sha256(order.tobytes() + top.tobytes()).hexdigest())
