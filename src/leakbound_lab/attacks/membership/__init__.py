"""Membership inference: which of the records at hand was the target network trained on?"""
