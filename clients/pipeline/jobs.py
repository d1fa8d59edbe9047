"""Jobs for ``spark-submit``: the commands of ``nyala job``, whose tasks Spark runs unless told otherwise.

spark-submit .../nyala/clients/pipeline/jobs.py backup flights s3://bucket/backups --url grpc://server:8815
python -m nyala.clients.pipeline.jobs verify flights --url grpc://a:8815 --other-url grpc://b:8815
"""

import os

from nyala.clients.cli import job
from nyala.clients.cli.run import run


def main() -> None:
    """Run one job."""
    os.environ.setdefault("NYALA_EXECUTOR", "spark")
    run(lambda: job.app(obj=_no_engine, prog_name="jobs.py"))


def _no_engine(path: object, create: bool = False) -> None:
    """Say why there is no ``--data`` here: the workers of Spark could not reach it."""
    from nyala.schemas.errors import InvalidArgumentError

    raise InvalidArgumentError(f"serve the directory {path} and give --url: tasks on Spark need a server")


if __name__ == "__main__":
    main()
