// The version of these headers, as fedkern.__version__ has it.
#pragma once

#define FEDKERN_VERSION_MAJOR 0
#define FEDKERN_VERSION_MINOR 1
#define FEDKERN_VERSION_PATCH 0
/// To compare in `#if`: 10000 major + 100 minor + patch.
#define FEDKERN_VERSION (10000 * FEDKERN_VERSION_MAJOR + 100 * FEDKERN_VERSION_MINOR + FEDKERN_VERSION_PATCH)
