"""What is made for sites beside the package: programs as single files, and the tested versions of a release.

Nothing of mgpu imports it.
"""
