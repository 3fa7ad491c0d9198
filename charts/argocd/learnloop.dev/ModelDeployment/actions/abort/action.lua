-- The canary, or else the promoted model that is still guarded.
local status = obj.status or {}
local arm = status.canary
if arm == nil and status.previous ~= nil then
  arm = status.stable
end
if arm == nil then
  error("no revision is being rolled out or guarded")
end
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["learnloop.dev/abort"] = arm.revision
return obj
