"""A store in a bucket and its processes in one thread: holders, standbys and clients, over failures drawn by a seed."""
