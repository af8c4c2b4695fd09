"""What is made for sites beside the package itself: single files of the programs, and the versions that a release was tested with.

Nothing of mgpu imports it.
"""
