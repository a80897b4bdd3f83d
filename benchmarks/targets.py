"""GPUs and TPUs that need not be here, described from published hardware facts: what XLA needs to compile for them."""

from dataclasses import dataclass
from typing import Any

GB = 1e9


@dataclass(frozen=True)
class Target:
    """One device. Rates are those of its maker's data sheet, in bytes and operations a second."""

    name: str
    title: str
    platform: str  # as XLA calls it: gpu, tpu
    memory: float  # bytes
    bandwidth: float  # of its memory
    flops: float  # float32 outside of products, one operation a multiply or an add
    products: float  # float32 in products of matrices; on TPUs by six passes of bfloat16
    launch: float  # seconds from the start of a kernel to the start of the next, when neither has any work
    condition: float  # seconds in which nothing runs while the host learns whether a loop goes on
    l2: int = 0
    gpu: str = ""  # gpu_device_info of XLA's GpuTargetConfigProto, besides what is above

    def devices(self, count: int = 1) -> list[Any]:
        """So many of them, for compilation only. To be called in a process of its own, with `environment()`."""
        from jax.experimental import topologies

        if self.platform == "gpu":
            found = topologies.get_topology_desc(
                platform="cuda", target_config=self.description(), topology=f"1x{count}x1"
            )
        else:
            grid = {1: "1x1", 4: "2x2", 8: "2x4"}[count]
            bounds = (*map(int, grid.split("x")), 1)
            found = topologies.get_topology_desc(
                platform="tpu", topology_name=f"{self.name}:{grid}", chips_per_host_bounds=bounds
            )
        return list(found.devices)

    def description(self) -> str:
        """XLA's GpuTargetConfigProto as text."""
        every = (  # equal on all GPUs since 2017; older runtimes than 12.3 would keep loops out of CUDA graphs
            "threads_per_warp: 32 threads_per_block_limit: 1024 registers_per_core_limit: 65536 "
            "registers_per_block_limit: 65536 shared_memory_per_block: 49152 "
            "block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 "
            "thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64 "
            'driver_version: "12.9.0" runtime_version: "12.9.0" compile_time_toolkit_version: "12.9.0"'
        )
        rates = f"memory_bandwidth: {self.bandwidth:.0f} device_memory_size: {self.memory:.0f} l2_cache_size: {self.l2}"
        return (
            f'platform_name: "CUDA" device_description_str: "{self.title}" '
            f"gpu_device_info {{ {self.gpu} {rates} {every} }}"
        )


def environment() -> dict[str, str]:
    """What a process that compiles for these must have in its environment before it imports JAX."""
    return {
        "JAX_PLATFORMS": "cpu",  # the plugins compile; no device is looked for
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "false",  # as tests of other things have it
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # a compiler takes no chip from another process
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


TARGETS = {
    target.name: target
    for target in (
        Target(
            name="h100",
            title="H100 SXM",
            platform="gpu",
            memory=80 * GB,
            bandwidth=3350 * GB,
            flops=66.9e12,
            products=66.9e12,
            launch=2.5e-6,
            condition=10e-6,
            l2=50 * 2**20,
            gpu="cuda_compute_capability { major: 9 minor: 0 } core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98 "
            "threads_per_core_limit: 2048 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448",
        ),
        Target(
            name="a100",
            title="A100 SXM 80 GB",
            platform="gpu",
            memory=80 * GB,
            bandwidth=2039 * GB,
            flops=19.5e12,
            products=19.5e12,
            launch=2.5e-6,
            condition=10e-6,
            l2=40 * 2**20,
            gpu="cuda_compute_capability { major: 8 minor: 0 } core_count: 108 fpus_per_core: 64 clock_rate_ghz: 1.41 "
            "threads_per_core_limit: 2048 shared_memory_per_core: 167936 shared_memory_per_block_optin: 166912",
        ),
        Target(
            name="l4",
            title="L4",
            platform="gpu",
            memory=24 * GB,
            bandwidth=300 * GB,
            flops=30.3e12,
            products=30.3e12,
            launch=2.5e-6,
            condition=10e-6,
            l2=48 * 2**20,
            gpu="cuda_compute_capability { major: 8 minor: 9 } core_count: 58 fpus_per_core: 128 clock_rate_ghz: 2.04 "
            "threads_per_core_limit: 1536 shared_memory_per_core: 102400 shared_memory_per_block_optin: 101376",
        ),
        Target(
            name="v5e",
            title="TPU v5e",
            platform="tpu",
            memory=16 * GB,
            bandwidth=819 * GB,
            flops=8 * 128 * 4 * 1.5e9,  # lanes, units in each, clock
            products=197e12 / 6,
            launch=0.5e-6,
            condition=0.0,  # whole programs run there
        ),
    )
}
