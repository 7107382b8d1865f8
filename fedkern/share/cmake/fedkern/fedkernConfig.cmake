# find_package(fedkern) makes the target fedkern::headers: the include folder, and C++20. Nothing is linked.
get_filename_component(_fedkern "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(EXISTS "${_fedkern}/include/fedkern")
  set(fedkern_INCLUDE_DIR "${_fedkern}/include")
else() # a checkout
  get_filename_component(fedkern_INCLUDE_DIR "${_fedkern}/../csrc/include" ABSOLUTE)
endif()
if(NOT TARGET fedkern::headers)
  add_library(fedkern::headers INTERFACE IMPORTED)
  set_target_properties(fedkern::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${fedkern_INCLUDE_DIR}")
  set_property(TARGET fedkern::headers PROPERTY INTERFACE_COMPILE_FEATURES cxx_std_20)
endif()
unset(_fedkern)
