# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

import os

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyFedkern(PythonPackage):
    """Compiled kernels for federated Bayesian inference, and the methods built on them."""

    # The archive of a release lies where you call Spack, until the project has an address that Spack can load it from.
    manual_download = True

    license("BSD-3-Clause")

    # RELEASING.md adds the sha256 of a release. Without it: spack install --no-checksum
    version("0.1.0")

    variant("mpi", default=True, description="Run each site as a rank of the cluster's MPI")

    depends_on("cxx", type="build")
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-pybind11@3:", type="build")
    depends_on("py-shtab@1.7:", type="build")

    with default_args(type=("build", "run")):
        depends_on("python@3.11:")
        depends_on("py-narwhals@2:")
        depends_on("py-numpy@2.2:")
        depends_on("py-scipy@1.14:")
        depends_on("py-pydantic@2.7:")
        depends_on("py-rich@13:")
        depends_on("py-threadpoolctl@3.5:")
        depends_on("py-mpi4py@4.1:", when="+mpi")

    conflicts("%gcc@:10", msg="its sources are C++20, which GCC has from version 11")
    conflicts("platform=windows", msg="its locks of folders and its signals need Linux or macOS")

    # Others of its modules need extras, of which Spack has no package.
    import_modules = ["fedkern", "fedkern.api", "fedkern.kernels"]

    def url_for_version(self, version):
        return f"file://{os.getcwd()}/fedkern-{version}.tar.gz"
