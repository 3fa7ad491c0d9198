-- Names revision and step (from 1): an approval given once can never pass a later pause or another model.
if obj.status == nil or obj.status.canary == nil or obj.status.step == nil then
  error("nothing waits for approval")
end
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["learnloop.dev/approve"] = obj.status.canary.revision .. "/" .. (obj.status.step + 1)
return obj
